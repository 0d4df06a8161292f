"""Intervals from one to three repeats: the spread is pooled over all arms measured so far. Pure.

A block is one repeat of two arms: the mean over the loads of the logarithm of their figures' ratio.
Blocks of different arms scatter alike, for it is the same prompts and the same machine, and so a
candidate's first block can be judged by what all others showed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from autospec.measure import robust, stats
from autospec.measurement import Measurement
from autospec.tune.objective import Figure, figures

__all__ = ["LEAST_FREEDOM", "Spread", "blocks"]

#: Degrees of freedom from which a spread is one: with one, Student's factor is 12 and says nothing.
LEAST_FREEDOM: Final = 2


@dataclass(frozen=True, slots=True)
class Spread:
    """The pooled variance of a block.

    Attributes:
        squares: sum of squared distances from each arm's own mean.
        freedom: degrees of freedom: blocks less arms.
    """

    squares: float = 0.0
    freedom: int = 0

    @classmethod
    def of(cls, arms: Iterable[Collection[float]]) -> Spread:
        """The spread over the blocks of several arms."""
        spread = cls()
        for arm in arms:
            spread = spread.plus(arm)
        return spread

    def plus(self, arm: Collection[float]) -> Spread:
        """The same with the blocks of one more arm; a single block tells nothing of its spread."""
        if len(arm) < 2:
            return self
        mean = statistics.fmean(arm)
        squares = sum((block - mean) ** 2 for block in arm)
        return Spread(self.squares + squares, self.freedom + len(arm) - 1)

    def ratio(self, arm: Sequence[float], level: float, noise_floor: float = 0.0) -> stats.Ratio:
        """Ratio whose logarithm is the mean of an arm's blocks, with an interval.

        Args:
            arm: its blocks, at least one; they should be among the spread's own.
            level: probability that either end is missed by the truth, two-sided.
            noise_floor: absolute log ratio by which two launches of one configuration differ,
                added in quadrature.

        Returns:
            The ratio; its interval is from 0 to infinity where the spread is not known.
        """
        mean = statistics.fmean(arm)
        value = math.exp(mean)
        if self.freedom < LEAST_FREEDOM:
            return stats.Ratio(value, 0.0, math.inf, len(arm))
        reach = robust.student(self.freedom, level)
        error = math.sqrt(self.squares / self.freedom / len(arm))
        half = math.hypot(reach * error, noise_floor)
        return stats.Ratio(value, math.exp(mean - half), math.exp(mean + half), len(arm))


def blocks(
    measurement: Measurement, other: Measurement, figure: Figure, part: str = "tune"
) -> list[float]:
    """A block for each repeat that both arms have at every load of ``other``, in order.

    Raises:
        MeasureError: a figure is no positive number.
    """
    levels = sorted({run.concurrency for run in other.runs if run.part == part})
    ours = {level: figures(measurement, level, part, figure) for level in levels}
    theirs = {level: figures(other, level, part, figure) for level in levels}
    repeats = sorted(
        set.intersection(*(set(arm[level]) for arm in (ours, theirs) for level in levels))
        if levels
        else ()
    )
    return [
        statistics.fmean(math.log(ours[level][n] / theirs[level][n]) for level in levels)
        for n in repeats
    ]
