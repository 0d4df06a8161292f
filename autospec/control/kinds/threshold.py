"""``threshold``: stops speculating when the accept rate falls below a number.

What most engines that can stop at all do. It knows no step times: a baseline.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from autospec.control.policy import Decision, Observation, Setting
from autospec.evidence import require

__all__ = ["Threshold"]


class Threshold:
    """One depth while the accept rate over a window is high enough; else plain for a while."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """What a policy file may give.

        Attributes:
            min_accept_rate: correct drafts over proposed ones below which speculation stops.
            window_steps: speculative steps that the rate is taken over.
            retry_steps: plain steps after which speculation is tried again; 0 is never.
            depth: drafts a request; the deepest that the server can run by default.
        """

        min_accept_rate: float = 0.5
        window_steps: int = 50
        retry_steps: int = 500
        depth: int | None = None

        def __post_init__(self) -> None:
            rate = self.min_accept_rate
            require(0 <= rate <= 1, "min_accept_rate", rate, "between 0 and 1")
            require(self.window_steps >= 1, "window_steps", self.window_steps, "at least 1")
            require(self.retry_steps >= 0, "retry_steps", self.retry_steps, "at least 0")
            require(self.depth is None or self.depth >= 1, "depth", self.depth, "at least 1")

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        self._parameters = parameters
        deepest = setting.deepest
        self._depth = setting.at_most(deepest if parameters.depth is None else parameters.depth)
        self._window: deque[tuple[int, int]] = deque()
        self._correct = self._proposed = self._plain_steps = 0
        self._speculates = True

    def decide(self, observation: Observation) -> Decision:
        """Compare the rate with the number."""
        parameters = self._parameters
        if observation.correct and self._speculates:
            self._learn(sum(observation.correct), observation.depth * len(observation.correct))
            full = len(self._window) >= parameters.window_steps
            if full and self._correct < parameters.min_accept_rate * self._proposed:
                self._speculates = False
                self._plain_steps = 0
        if not self._speculates:
            self._plain_steps += 1
            if 0 < parameters.retry_steps < self._plain_steps:
                self._speculates = True
                self._window.clear()
                self._correct = self._proposed = 0
        if self._speculates:
            return Decision(self._depth, f"accept rate is not below {parameters.min_accept_rate}")
        return Decision(0, f"accept rate fell below {parameters.min_accept_rate}")

    def _learn(self, correct: int, proposed: int) -> None:
        self._window.append((correct, proposed))
        self._correct += correct
        self._proposed += proposed
        if len(self._window) > self._parameters.window_steps:
            correct, proposed = self._window.popleft()
            self._correct -= correct
            self._proposed -= proposed
