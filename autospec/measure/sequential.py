"""When an interleaved comparison may stop, and what it says then. Pure.

Looking again after every pair gives chance as many tries: twenty looks at 95 % intervals call one
in four comparisons of equal arms different. Here the intervals of all looks together miss the
truth as often as one should (group sequential testing: Pocock 1977, Lan and DeMets 1983), and so
the verdict may be read off any of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autospec.errors import MeasureError
from autospec.evidence import Decision
from autospec.measure import robust, stats

__all__ = ["Look", "StoppingRule"]

#: More would take longer to calibrate than to measure.
_MOST_PAIRS = 100


@dataclass(frozen=True, slots=True)
class Look:
    """What all pairs so far say.

    Attributes:
        ratio: of the arms, over all levels, with the interval that is valid for this look;
            before the first look that counts, an ordinary one, which no verdict rests on.
        decision: what the interval shows; ``inconclusive`` before the first look that counts.
        stop: whether no more pairs are needed, or allowed.
        reason: one line.
        levels: ratio at each level, each with an interval of its own valid for this look.
    """

    ratio: stats.Ratio
    decision: Decision
    stop: bool
    reason: str
    levels: Mapping[int, stats.Ratio] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoppingRule:
    """Go on until the verdict is clear, or to the cap.

    Passes are made in the order A B B A A B B A, so that a steady drift falls on both arms alike.

    Attributes:
        least_pairs: before the first look that counts; the cap, if that is less.
        max_pairs: the cap.
        alpha: probability that the intervals of all looks together miss the true ratio, and so at
            most that of a false ``faster`` or ``slower`` however often one looks. That is for
            independent noise. Where noise remembers 0.6 of the pass before, the default of 0.04
            makes false verdicts in 4.4 % of 60,000 simulated comparisons of equal arms, and
            intervals that miss in 5.6 %; hence no 0.05.
        margin: ratios within this of 1 are equivalent.
    """

    least_pairs: int = 5
    max_pairs: int = 20
    alpha: float = 0.04
    margin: float = stats.MARGIN

    def __post_init__(self) -> None:
        for name in ("least_pairs", "max_pairs"):
            if not 1 <= getattr(self, name) <= _MOST_PAIRS:
                raise MeasureError(
                    f"{name} is {getattr(self, name)}, must be from 1 to {_MOST_PAIRS}"
                )
        for name in ("alpha", "margin"):
            if not 0 < getattr(self, name) < 1:
                raise MeasureError(f"{name} is {getattr(self, name)}, must be between 0 and 1")

    def look(self, a: Sequence[float], b: Sequence[float], *, noise_floor: float = 0.0) -> Look:
        """Judge all figures so far.

        Args:
            a: one positive figure a pass, all since the first.
            b: the same of the arm compared with; its i-th pass is paired with the i-th of ``a``.
            noise_floor: absolute log ratio that two launches of one configuration differ by on
                this machine. It widens the interval in quadrature, so that a verdict is never
                finer than the machine allows.

        Raises:
            MeasureError: the arms differ in length, are empty or longer than the cap, or a figure
                is not positive; or the noise floor is negative or not finite.
        """
        return self._judge(stats.log_ratios(a, b), noise_floor)

    def look_levels(
        self,
        levels: Mapping[int, tuple[Sequence[float], Sequence[float]]],
        *,
        noise_floor: float = 0.0,
    ) -> Look:
        """Judge a comparison made at several concurrency levels: one verdict for all.

        The passes of one repeat at all levels are one block: its figure is the geometric mean of
        its ratios. So what befalls a whole repeat is counted once, whatever its share at each
        level.

        Args:
            levels: both arms' figures at each level, as ``look`` takes them.
            noise_floor: as ``look`` takes it.

        Raises:
            MeasureError: as ``look``; or there are no levels, or they differ in pairs.
        """
        if not levels:
            raise MeasureError("no levels to judge, must be at least one")
        logs = {level: stats.log_ratios(a, b) for level, (a, b) in levels.items()}
        counts = sorted({len(row) for row in logs.values()})
        if len(counts) > 1:
            raise MeasureError(f"levels have {counts[0]} to {counts[-1]} pairs, must be as many")
        blocks = [statistics.fmean(block) for block in zip(*logs.values(), strict=True)]
        look = self._judge(blocks, noise_floor)
        reach = self._reach(counts[0])
        ratios = {level: stats.from_logs(row, reach, noise_floor) for level, row in logs.items()}
        return replace(look, levels=ratios)

    def _judge(self, logs: Sequence[float], noise_floor: float) -> Look:
        if not (math.isfinite(noise_floor) and noise_floor >= 0):
            raise MeasureError(f"noise floor is {noise_floor}, must be a number of at least 0")
        reach = self._reach(len(logs))
        ratio = stats.from_logs(logs, reach, noise_floor)
        bare = stats.from_logs(logs, reach) if noise_floor else ratio
        return self._look(ratio, stats.verdict(bare, self.margin))

    def _look(self, ratio: stats.Ratio, bare: Decision) -> Look:
        """What follows from the interval, ``bare`` being the verdict without the noise floor."""
        if ratio.n < self._first:
            reason = f"{ratio.n} of at least {self._first} pairs"
            return Look(ratio, "inconclusive", stop=False, reason=reason)
        decision = stats.verdict(ratio, self.margin)
        stop = decision != "inconclusive" or ratio.n == self.max_pairs
        reason = f"{decision} after {ratio.n} pairs"
        if decision == "inconclusive":
            reason += ", the most allowed" if stop else f" of at most {self.max_pairs}"
        if decision != bare:
            reason += f"; {bare} but for the machine's noise between launches"
        return Look(ratio, decision, stop, reason)

    @property
    def _first(self) -> int:
        """Pairs at the first look that counts."""
        return min(self.least_pairs, self.max_pairs)

    def _reach(self, n: int) -> float:
        """Half the width of the interval after ``n`` pairs, in standard errors."""
        if n > self.max_pairs:
            raise MeasureError(f"{n} pairs to judge, must be at most {self.max_pairs}")
        if n < 2:
            return math.inf
        least = max(2, self._first)
        if n < least:
            return robust.critical(n, self.alpha)
        return robust.boundary(least, self.max_pairs, self.alpha)[n - least]
