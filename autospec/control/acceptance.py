"""A running estimate of how often drafts are right, position by position. Pure.

``p_d`` is the share of drafts at position ``d`` that are right, among requests whose drafts before
it all were. One step at depth ``k`` tells of every position up to ``k``, so that all depths up to
``k`` are scored from the same data; a position beyond is taken to do as well as the one before it
until it has been seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Acceptance", "accept_lengths", "deviation", "survivors"]

#: What is taken for the first position before anything was seen, and how many requests that weighs.
FIRST_GUESS = 0.6
FIRST_WEIGHT = 0.5
#: How many requests the position before weighs as a guess for the next.
GUESS_WEIGHT = 2.0


def survivors(correct: Sequence[int], depth: int) -> list[int]:
    """How many requests got to each position.

    Args:
        correct: correct drafts of each request.
        depth: the depth they were drafted at.

    Returns:
        ``depth + 1`` counts: item ``d`` is of requests with ``d`` or more correct drafts.
    """
    left = len(correct)
    alive = [left]
    for right in range(depth):
        left -= correct.count(right)
        alive.append(left)
    return alive


def accept_lengths(rates: Sequence[float]) -> list[float]:
    """Expected tokens of a request in a step by depth: ``E_k = 1 + p_1 + p_1 p_2 + ...``."""
    lengths = [1.0]
    survival = 1.0
    for rate in rates:
        survival *= rate
        lengths.append(lengths[-1] + survival)
    return lengths


def deviation(rates: Sequence[float]) -> float:
    """Standard deviation of the tokens of one request in one step that drafts these positions."""
    survival, mean, square = 1.0, 0.0, 0.0
    for position, rate in enumerate(rates, start=1):
        survival *= rate
        mean += survival
        square += (2 * position - 1) * survival
    return math.sqrt(max(square - mean * mean, 0.0))


class Acceptance:
    """Counts by position that forget exponentially.

    Attributes:
        trials: requests, by position, whose earlier drafts were all right.
        hits: those of them whose draft there was right too.
    """

    def __init__(self, depth: int) -> None:
        """Begin with nothing seen of any position up to ``depth``."""
        self.trials = [0.0] * depth
        self.hits = [0.0] * depth

    def learn(self, alive: Sequence[int], keep: float) -> None:
        """Count one step.

        Args:
            alive: what ``survivors`` gives.
            keep: the share that everything counted before still counts for.
        """
        trials, hits = self.trials, self.hits
        for position in range(len(trials)):
            trials[position] *= keep
            hits[position] *= keep
        for position in range(len(alive) - 1):
            trials[position] += alive[position]
            hits[position] += alive[position + 1]

    def rates(self) -> list[float]:
        """The estimate of every ``p_d``."""
        rates = []
        guess, weight = FIRST_GUESS, FIRST_WEIGHT
        for hits, trials in zip(self.hits, self.trials, strict=True):
            guess = (hits + weight * guess) / (trials + weight)
            weight = GUESS_WEIGHT
            rates.append(guess)
        return rates

    def restart(self, trials: Sequence[float], hits: Sequence[float], weight: float) -> None:
        """Keep only these counts.

        Args:
            trials: as the attribute.
            hits: as the attribute.
            weight: requests that the old estimate may still count for at positions without a trial,
                where it is scaled as the last position with one was.
        """
        old = self.rates()
        scale = 1.0
        for position, count in enumerate(trials):
            if count > 0:
                scale = (hits[position] / old[position] + 1) / (count + 1)
                self.trials[position], self.hits[position] = count, hits[position]
            else:
                kept = min(weight, self.trials[position])
                self.trials[position] = kept
                self.hits[position] = kept * min(old[position] * scale, 1.0)
