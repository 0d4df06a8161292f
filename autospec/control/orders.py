"""Orders from a tuning server's owner to the plugin in it: at which depth to draft.

One small JSON file in the study's private folder. Only ``autospec tune`` writes one and names it to
the server that it starts (``AUTOSPEC_SWEEP``); the plugin's answer stands in its status.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from autospec import schema
from autospec.errors import ConfigError, SchemaError

__all__ = ["Order", "read_order", "write_order"]


@dataclass(frozen=True, slots=True)
class Order:
    """What the server is to do until the next order.

    Attributes:
        number: names this order; the status repeats it once the order holds.
        depth: drafts in a row at each decode step.
        depths: every depth that an order of this server may name.
    """

    number: str
    depth: int
    depths: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.depths or min(self.depths) < 1 or self.depth not in self.depths:
            raise ConfigError(
                f"order {self.number}: depth is {self.depth}, must be one of {self.depths}, all "
                "from 1"
            )


def write_order(path: Path, order: Order) -> None:
    """Give an order, atomically, in a file that only this user may read or write.

    Raises:
        StorageError: it could not be written; the order before it stands.
    """
    schema.write_text(path, json.dumps(schema.dump(order)) + "\n", private=True)


def read_order(path: Path) -> Order:
    """Read the order that stands.

    Raises:
        ConfigError: the file is another user's, or others may read or write it.
        SchemaError: it is missing or no order.
    """
    try:
        facts = path.stat()
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SchemaError(f"{path}: not JSON ({error})") from error
    if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
        raise ConfigError(f"{path}: orders must be this user's alone, mode 0600")
    return schema.load(Order, data, str(path))
