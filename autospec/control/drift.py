"""Whether a server still does what its profile says: a sequential test over blocks of steps. Pure.

Decode steps are gathered into blocks. Each block that can be judged votes on four misfits: accept
length lower or higher than measured, steps slower or faster. A vote multiplies the test's capital,
which is kept at 1 or more, by ``OUTSIDE`` if the block lies beyond the tolerance on that side, else
by ``WITHIN``. As long as no more than half of the blocks lie beyond it, whatever came before, no
vote is expected to raise the capital, and the first alarm of any of the four comes after
``FALSE_ALARM_BLOCKS`` blocks or more on average (an e-detector: Shin, Ramdas and Rinaldo 2024).
Nothing is assumed about how figures are distributed, and a block that was disturbed, however much,
is one vote. A misfit is let go once so many blocks fit that the capital is used up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from autospec.control.costs import Costs, drafting_depth
from autospec.measurement import ServerDelta
from autospec.profile import Profile

__all__ = ["FALSE_ALARM_BLOCKS", "Drift", "Misfit", "Quantity", "accept_ranges"]

Quantity = Literal["accept_length", "step_time_ms"]

#: Least mean number of blocks to an alarm where the profile fits.
FALSE_ALARM_BLOCKS: Final = 10_000
#: What a vote does to the capital: the mean of the two is 1.
OUTSIDE: Final = 1.8
WITHIN: Final = 0.2
#: By how much a figure may lie beyond what was measured, as a ratio.
TOLERANCE: Final = 1.15
#: The same for batch sizes: beyond, step times were not measured.
BATCH_TOLERANCE: Final = 1.25
#: The least that makes a block. Seconds keep one request's course from being many votes.
BLOCK_STEPS: Final = 200
BLOCK_S: Final = 10.0

_ALARM: Final = math.log(4 * FALSE_ALARM_BLOCKS)


@dataclass(frozen=True, slots=True)
class Misfit:
    """A figure that no longer fits the profile.

    Attributes:
        quantity: which one.
        observed: its value in the block that decided.
        low: the least that was measured.
        high: the most.
        depth: drafting depth of the block.
        batch_size: mean batch size of the block.
    """

    quantity: Quantity
    observed: float
    low: float
    high: float
    depth: int
    batch_size: float

    def __str__(self) -> str:
        name, unit = (
            ("accept length", "") if self.quantity == "accept_length" else ("a step", " ms")
        )
        verb = "is" if self.quantity == "accept_length" else "takes"
        low, high = f"{self.low:.2f}", f"{self.high:.2f}"
        measured = low if low == high else f"{low} to {high}"
        return (
            f"{name} {verb} {self.observed:.2f}{unit} at depth {self.depth} and batch size "
            f"{self.batch_size:.1f}, the profile measured {measured}{unit}"
        )


@dataclass(slots=True)
class _Test:
    """One misfit: the logarithm of the capital, and what stands since the alarm."""

    score: float = 0.0
    misfit: Misfit | None = None

    def vote(self, *, outside: bool, found: Misfit) -> bool:
        """Count a block; returns whether it raised the alarm."""
        score = self.score + math.log(OUTSIDE if outside else WITHIN)
        self.score = min(max(score, 0.0), _ALARM)
        if self.score == 0:
            self.misfit = None
        elif self.score == _ALARM and self.misfit is None:
            self.misfit = found
            return True
        return False


@dataclass(slots=True)
class _Block:
    """Decode steps at one depth, as sums."""

    depth: int
    steps: int = 0
    batch: float = 0.0
    ms: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, counts: ServerDelta, seconds: float) -> None:
        self.steps += counts.num_steps
        self.batch += counts.num_steps * counts.batch_size
        self.ms += counts.num_steps * counts.step_time_ms
        self.tokens += counts.num_tokens
        self.seconds += seconds


class Drift:
    """The four tests of one server.

    Attributes:
        blocks: how many blocks were judged.
        unjudged: why the latest block could not be judged; None when it was.
    """

    def __init__(
        self,
        costs: Costs,
        accept: Mapping[int, tuple[float, float]],
        *,
        noise_floor: float = 0.0,
        block_steps: int = BLOCK_STEPS,
        block_s: float = BLOCK_S,
    ) -> None:
        """Begin.

        Args:
            costs: the profile's step times.
            accept: lowest and highest accept length that were measured, by depth.
            noise_floor: absolute logarithm of a ratio that may be the machine's own; step times
                are allowed at least as much.
            block_steps: steps in a block, at least.
            block_s: time that a block takes, at least.
        """
        self._costs = costs
        self._accept = accept
        self._allowed = {
            "accept_length": TOLERANCE,
            "step_time_ms": max(TOLERANCE, math.exp(noise_floor)),
        }
        self._block_steps = block_steps
        self._block_s = block_s
        self._block = _Block(0)
        self._tests: dict[tuple[Quantity, bool], _Test] = {}
        self.blocks = 0
        self.unjudged: str | None = "too few steps were seen yet"

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """What does not fit at present."""
        return tuple(test.misfit for test in self._tests.values() if test.misfit is not None)

    def learn(self, depth: int, counts: ServerDelta, seconds: float) -> tuple[Misfit, ...]:
        """Take what the server did in a while.

        Args:
            depth: at which it drafted all that while.
            counts: its own counts of decode steps, those beside a prefill or an idle gap left out.
            seconds: how long the while was.

        Returns:
            Misfits that were found now and did not stand before.
        """
        if depth != self._block.depth:
            self._block = _Block(depth)
        self._block.add(counts, seconds)
        if self._block.steps < self._block_steps or self._block.seconds < self._block_s:
            return ()
        block, self._block = self._block, _Block(depth)
        return self._judge(block)

    def interrupt(self) -> None:
        """Drop what is gathered: the depth changed within, or the server is another."""
        self._block = _Block(self._block.depth)

    def _judge(self, block: _Block) -> tuple[Misfit, ...]:
        depth, batch_size = block.depth, block.batch / block.steps
        self.unjudged = self._beyond(depth, batch_size)
        if self.unjudged is not None:
            return ()
        self.blocks += 1
        time_ms = self._costs.time_ms(depth, batch_size)
        figures: list[tuple[Quantity, float, tuple[float, float]]] = [
            ("step_time_ms", block.ms / block.steps, (time_ms, time_ms))
        ]
        if depth and depth in self._accept:
            figures.append(("accept_length", block.tokens / block.batch, self._accept[depth]))
        found: list[Misfit] = []
        for quantity, observed, (low, high) in figures:
            misfit = Misfit(quantity, observed, low, high, depth, batch_size)
            allowed = self._allowed[quantity]
            for above in (False, True):
                test = self._tests.setdefault((quantity, above), _Test())
                outside = observed > high * allowed if above else observed < low / allowed
                if test.vote(outside=outside, found=misfit):
                    found.append(misfit)
        return tuple(found)

    def _beyond(self, depth: int, batch_size: float) -> str | None:
        if depth not in self._costs.depths:
            return f"depth {depth} was not measured"
        low, high = self._costs.measured(depth)
        if not low / BATCH_TOLERANCE <= batch_size <= high * BATCH_TOLERANCE:
            return f"batch size {batch_size:.1f} is beyond the measured {low:g} to {high:g}"
        return None


def accept_ranges(profile: Profile) -> dict[int, tuple[float, float]]:
    """Lowest and highest accept length by depth over the classes of prompts that were measured.

    They are of the best configuration, and of shallower ones by its acceptance at each position.
    A mixture of the classes lies between them.
    """
    best = profile.verdict.best
    rows = [row for row in profile.acceptance if row.config == best]
    if best is None or not rows:
        return {}
    deepest = drafting_depth(best)
    lengths = {deepest: [row.accept_length for row in rows]}
    if best.topk in {None, 1}:
        for depth in range(1, deepest):
            lengths[depth] = [1 + sum(row.accept_rate_per_pos[:depth]) for row in rows]
    return {depth: (min(found), max(found)) for depth, found in lengths.items()}
