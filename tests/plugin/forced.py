"""Policies for tests, given to a server as ``module:Class``."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from autospec.control.policy import Decision, Observation, Setting


class Forced:
    """Another depth every few steps, in an order that looks random and is always the same."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """``every``: steps that a depth stays, at most; ``depths``: to be made ready."""

        every: int = 5
        depths: tuple[int, ...] | None = None

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        self._depths = setting.depths
        self._every = parameters.every
        self._state = 12345
        self._left = 0
        self._said = Decision(setting.deepest, "begins")

    def decide(self, observation: Observation) -> Decision:
        """Say the same for a while."""
        if self._left == 0:
            self._state = (1103515245 * self._state + 12345) % 2**31
            self._left = 1 + (self._state >> 8) % self._every
            depth = self._depths[(self._state >> 16) % len(self._depths)]
            self._said = Decision(depth, "forced")
        self._left -= 1
        return self._said


class Failing(Forced):
    """Works for a while, then raises."""

    def decide(self, observation: Observation) -> Decision:
        """Raise at the twentieth step."""
        self._calls = getattr(self, "_calls", 0) + 1
        if self._calls >= 20:
            raise RuntimeError("a fault in a user's policy")
        return super().decide(observation)


class Lost(Forced):
    """Asks for depths that no server has."""

    def decide(self, observation: Observation) -> Decision:
        """Ask for what there is not."""
        return Decision(7 + 90 * (self._state % 2), "lost")


class Unready(Forced):
    """In whose server depth 1 cannot be made ready, as where memory is short."""

    def __init__(self, setting: Setting, parameters: Forced.Parameters) -> None:
        super().__init__(setting, parameters)
        eagle = importlib.import_module("autospec.plugin.eagle")
        ready = eagle._Steered._state_at

        def unready(worker: Any, depth: int) -> Any:
            if depth == 1:
                raise MemoryError("no room for depth 1")
            return ready(worker, depth)

        eagle._Steered._state_at = unready
