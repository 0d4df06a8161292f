"""A server that stays between trials and runs a chain at each of its depths."""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

from autospec.config import SpecConfig
from autospec.control.orders import Order, write_order
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.engine.server import ServerProcess
from autospec.errors import EngineError, SchemaError
from autospec.tuning.steer import forget_status

__all__ = ["ChainServer", "Chains"]

#: Methods whose depth the plugin can switch, and NEXTN, which SGLang calls EAGLE.
_METHODS: Final = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE")
#: Orders are answered within 0.1 s where nothing is wrong.
_PATIENCE_S: Final = 10.0
_POLL_S: Final = 0.02


class Chains:
    """Which candidates can share a launch: chains alike in all but their depth.

    Args:
        candidates: of the search.
    """

    def __init__(self, candidates: Iterable[SpecConfig]) -> None:
        self._depths: dict[SpecConfig, set[int]] = {}
        for config in candidates:
            if _is_chain(config):
                self._depths.setdefault(_family(config), set()).add(config.num_steps or 0)

    def depths(self, config: SpecConfig) -> tuple[int, ...]:
        """Depths of a candidate's chain, rising; none where it is no chain or the only one."""
        found = self._depths.get(_family(config), set()) if _is_chain(config) else set()
        return tuple(sorted(found)) if config.num_steps in found and len(found) > 1 else ()

    def give_up(self, config: SpecConfig) -> None:
        """Launch every depth of this chain by itself from here on."""
        self._depths.pop(_family(config), None)


class ChainServer:
    """One server and the orders to the plugin in it.

    Args:
        config: a depth of the chain.
        depths: that may be ordered, rising.
        folder: the study's, where the file of the orders stands.

    Attributes:
        config: the greatest depth, which the server is started with.
    """

    def __init__(self, config: SpecConfig, depths: tuple[int, ...], folder: Path) -> None:
        self.config = replace(config, num_steps=depths[-1], num_draft_tokens=depths[-1] + 1)
        self._depths = depths
        self._name = secrets.token_hex(4)
        self._path = folder / f"orders-{self._name}.json"
        self._numbers = itertools.count(1)
        self._server: ServerProcess | None = None
        self._began_s = 0.0

    @property
    def environment(self) -> dict[str, str]:
        """Variables that open the orders' way; what would make it a serving one is taken back."""
        taken_back = ("AUTOSPEC_PROFILE", "AUTOSPEC_POLICY", "AUTOSPEC_TRACE")
        return {"AUTOSPEC_SWEEP": str(self._path.absolute()), **dict.fromkeys(taken_back, "")}

    @property
    def server(self) -> ServerProcess:
        """The server.

        Raises:
            EngineError: it was not started.
        """
        if self._server is None:
            raise EngineError(f"{self.config.label}: no server was started")
        return self._server

    def runs(self, config: SpecConfig) -> bool:
        """Whether a candidate is a depth of this chain."""
        return (
            _is_chain(config)
            and _family(config) == _family(self.config)
            and config.num_steps in self._depths
        )

    def start(self, server: ServerProcess) -> None:
        """Start the server, at the greatest depth.

        Raises:
            EngineError: it did not start.
            StorageError: no order can be written.
        """
        self._server = server
        self._began_s = time.time()
        for left in self._path.parent.glob("orders-*.json"):  # by a session that was killed
            left.unlink(missing_ok=True)
        self._write(self._depths[-1])
        server.start()

    def order(self, depth: int) -> PluginStatus:
        """Have the steps from here on run at a depth; gives the status that says so.

        Raises:
            EngineError: the plugin does not obey, or the server is gone.
            StorageError: the order cannot be written.
        """
        number = self._write(depth)
        deadline, said = time.monotonic() + _PATIENCE_S, "it says nothing"
        while time.monotonic() < deadline:
            self.server.check()
            status = self._status()
            if status is not None and not status.active:
                said = status.reason
                break
            if status is not None and status.order == number:
                if depth in status.depths:
                    return status
                said = f"only depths {list(status.depths)} are ready"
                break
            time.sleep(_POLL_S)
        raise EngineError(f"the plugin does not run depth {depth}: {said}")

    def require_ran(self, depth: int) -> None:
        """Raise unless the steps until now ran at a depth.

        Raises:
            EngineError: they did not, or the plugin gave up.
            StorageError: the order cannot be written.
        """
        ran = self.order(depth).depth
        if ran != depth:
            raise EngineError(f"the last step ran at depth {ran}, not {depth}")

    def stop(self) -> None:
        """End the server, and leave nothing of it behind."""
        if self._server is not None:
            self._server.stop()
            forget_status(self._server.port)
        self._path.unlink(missing_ok=True)

    def _write(self, depth: int) -> str:
        number = f"{self._name}-{next(self._numbers)}"
        write_order(self._path, Order(number, depth, self._depths))
        return number

    def _status(self) -> PluginStatus | None:
        """What the plugin of this server said last, if anything."""
        try:
            status = read_status(status_path(self.server.port))
        except SchemaError:
            return None
        # A file outlives a server that was killed, and its port may be another's by now.
        return status if status.updated_s >= self._began_s else None


def _is_chain(config: SpecConfig) -> bool:
    steps = config.num_steps or 0
    tokens = config.num_draft_tokens in (None, steps + 1)
    return config.algorithm in _METHODS and config.topk == 1 and steps >= 1 and tokens


def _family(config: SpecConfig) -> SpecConfig:
    return replace(config, num_steps=None, num_draft_tokens=None)
