"""What a policy believes about acceptance: a slow estimate that a change restarts. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from autospec.control.acceptance import Acceptance, accept_lengths, deviation, survivors
from autospec.control.detectors import Shift

__all__ = ["Belief", "Change"]

#: What a step showed: that acceptance fell, that it rose, or no change.
Change = Literal["fell", "rose"] | None

#: Least memory, in steps, whatever the batch size.
MIN_MEMORY_STEPS = 40
#: Steps between two renewals of what follows from the counts, once there are enough.
RENEWAL_STEPS = 4
FEW_REQUESTS = 32
#: What remains of the estimate of deeper positions when acceptance fell, in requests.
KEPT_REQUESTS = 4.0


class Belief:
    """Accept lengths by drafting depth, from the correct drafts that a server shows.

    Attributes:
        rates: ``p_d`` by position, see ``acceptance``.
        lengths: accept length of each candidate depth.
        errors: standard error of each.
    """

    def __init__(
        self, depths: Sequence[int], *, memory_steps: float, memory_requests: float, ratio: float
    ) -> None:
        """Begin without experience.

        Args:
            depths: the candidates, rising from 0.
            memory_steps: steps that the estimate rests on, at most.
            memory_requests: requests that it rests on, at most, unless that is under 40 steps.
            ratio: of ``Shift``.
        """
        self._depths = depths
        self._memory_steps = memory_steps
        self._memory_requests = memory_requests
        self._counts = Acceptance(depths[-1])
        self._fall = Shift(depths[-1], upward=False, ratio=ratio)
        self._rise = Shift(depths[-1], upward=True, ratio=ratio)
        self._since_renewal = 0
        self.rates: list[float] = []
        self.lengths: list[float] = []
        self.errors: list[float] = []
        self._renew()

    @property
    def requests(self) -> float:
        """How many requests the estimate rests on."""
        return self._counts.trials[0]

    @property
    def rise(self) -> float:
        """Evidence that acceptance is better than believed, in nats."""
        return self._rise.score

    def hope(self, position: int) -> float:
        """As good as a position's rate may well be."""
        return min(1.0, self.rates[position] + 1 / math.sqrt(self._counts.trials[position] + 1))

    def learn(self, correct: Sequence[int], depth: int, alarms: tuple[float, float]) -> Change:
        """Learn from one step.

        Args:
            correct: correct drafts of each request.
            depth: the depth they were drafted at.
            alarms: evidence, in nats, above which acceptance fell, and rose.
        """
        alive = survivors(correct, min(depth, self._depths[-1]))
        memory = max(MIN_MEMORY_STEPS, self._memory_requests / alive[0])
        self._counts.learn(alive, 1 - 1 / min(self._memory_steps, memory))
        self._fall.learn(alive)
        self._rise.learn(alive)
        if self._fall.score > alarms[0]:
            self._restart(self._fall, KEPT_REQUESTS)
            return "fell"
        if self._rise.score > alarms[1]:
            self._restart(self._rise, 0.0)
            return "rose"
        self._since_renewal += 1
        if self._since_renewal >= RENEWAL_STEPS or self.requests < FEW_REQUESTS:
            self._renew()
        return None

    def renew(self) -> None:
        """Bring the figures up to the last step."""
        if self._since_renewal:
            self._renew()

    def _restart(self, shift: Shift, kept: float) -> None:
        self._counts.restart(shift.trials, shift.hits, kept)
        self._fall.reset()
        self._rise.reset()
        self._renew()

    def _renew(self) -> None:
        self._since_renewal = 0
        self.rates = rates = self._counts.rates()
        lengths = accept_lengths(rates)
        root = math.sqrt(self.requests + 2)
        self.lengths = [lengths[depth] for depth in self._depths]
        self.errors = [deviation(rates[:depth]) / root for depth in self._depths]
        self._fall.expect(rates)
        self._rise.expect(rates)
