"""The policy of a tuning server: the depth that the tuner ordered, until it orders another."""

from __future__ import annotations

from pathlib import Path

from autospec.control.controller import Controller
from autospec.control.orders import read_order
from autospec.control.policy import Decision, Observation, Setting

__all__ = ["Ordered"]


class Ordered:
    """Obeys a file. A thread beside the server's loop looks at it; no decode step does.

    Args:
        path: where the orders come from.

    Attributes:
        order: the one that holds.
        depths: every depth that may be ordered, rising.

    Raises:
        AutospecError: no order stands there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = self._stamp()
        self.order = read_order(path)
        self.depths = tuple(sorted(set(self.order.depths)))
        self._said = self._decision()

    def decide(self, _observation: Observation) -> Decision:
        """Say what was ordered."""
        return self._said

    def look(self) -> bool:
        """Take the latest order; whether it is another than before.

        Raises:
            AutospecError: what stands there cannot be read, or names a depth never announced.
        """
        stamp = self._stamp()
        if stamp == self._seen:
            return False
        self._seen = stamp
        self.order = read_order(self._path)
        self._said = self._decision()
        return True

    def controller(self, static_depth: int) -> Controller:
        """This policy where the plugin takes one; plain decoding is never ordered."""
        return Controller(Setting((0, *self.depths)), self, static_depth=static_depth)

    def _decision(self) -> Decision:
        return Decision(self.order.depth, "ordered by the tuner")

    def _stamp(self) -> tuple[int, int]:
        try:
            facts = self._path.stat()
        except OSError:
            return (0, 0)
        return facts.st_ino, facts.st_mtime_ns
