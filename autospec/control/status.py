"""What the plugin inside a server says of itself: one small JSON file a server.

The plugin writes it, atomically and about once a second; ``serve``, ``watch`` and the client read
it. It holds no text of any request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from autospec import schema
from autospec.control.policy import Want
from autospec.errors import SchemaError
from autospec.folders import cache_dir

__all__ = [
    "PluginStatus",
    "StatusEvent",
    "Switching",
    "read_status",
    "status_path",
    "write_status",
]

#: What the plugin can switch: the drafting depth, speculation as a whole, or nothing at all.
Switching = Literal["depth", "on-off", "nothing"]


@dataclass(frozen=True, slots=True)
class StatusEvent:
    """A decision that was not the one before.

    Attributes:
        step: steps decided before it.
        batch_size: of the step that it was made for.
        depth: drafting depth from then on.
        reason: the policy's own.
        want: ``probe`` for a step that was run to learn from.
    """

    step: int
    batch_size: int
    depth: int
    reason: str
    want: Want = "settle"


@dataclass(frozen=True, slots=True)
class PluginStatus:
    """The state of the plugin in one server.

    Attributes:
        active: whether its decisions reach the server.
        reason: why it is not active, or what it does, in one sentence.
        pid: the process it works in.
        updated_s: when this was true, in seconds since 1970.
        profile: path of the profile asked for.
        policy: name or path of the policy asked for.
        kind: the policy's kind.
        algorithm: SGLang's name of the drafting method; None for a plain server.
        switching: what it can switch.
        depths: drafting depths that the server can run, rising.
        depth: of the last step that was decided.
        steps: steps decided.
        counters: ``plain_steps``, ``speculative_steps``, ``probe_steps``, ``shadow_drafts``,
            ``switches``, ``fallbacks``, ``recoveries``, ``errors``.
        depth_by_batch: the depth last decided for each batch size seen.
        decisions: the latest changes of decision, oldest first.
        step_time_ms: step times that the policy works with, by depth and batch size.
        decision_us: mean processor time of a decision with all that goes with it, the recorder's
            part too, in microseconds.
        trace: the file that a trace is recorded into.
        order: number of the order that holds, in a tuning server; None in any other.
    """

    active: bool
    reason: str
    pid: int
    updated_s: float
    profile: str | None = None
    policy: str | None = None
    kind: str | None = None
    algorithm: str | None = None
    switching: Switching = "nothing"
    depths: tuple[int, ...] = ()
    depth: int | None = None
    steps: int = 0
    counters: dict[str, int] = field(default_factory=dict)
    depth_by_batch: dict[int, int] = field(default_factory=dict)
    decisions: tuple[StatusEvent, ...] = ()
    step_time_ms: dict[int, dict[int, float]] = field(default_factory=dict)
    decision_us: float | None = None
    trace: str | None = None
    order: str | None = None
    schema: int = schema.SCHEMA


def status_path(port: int) -> Path:
    """Where the plugin of the server on a port of this machine writes, for this user."""
    return cache_dir() / "status" / f"{port}.json"


def write_status(path: Path, status: PluginStatus) -> None:
    """Write a status, atomically.

    Raises:
        StorageError: it could not be written; an older file is untouched.
    """
    schema.write_text(path, json.dumps(schema.dump(status)) + "\n", private=True)


def read_status(path: Path) -> PluginStatus:
    """Read a status.

    A file outlives a server that was killed: compare ``pid`` and ``updated_s``.

    Raises:
        SchemaError: the file is missing, not JSON, of a newer schema or breaks a rule.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise SchemaError(f"{path}: not JSON ({error})") from error
    if not isinstance(data, dict):
        raise SchemaError(f"{path}: must be a mapping, is {type(data).__name__}")
    schema.check_version(data, str(path))
    return schema.load(PluginStatus, data, str(path))
