"""How much two launches of one server differ, from a comparison's own passes. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from itertools import pairwise

from autospec.measure.stats import log_ratios

__all__ = ["launch_noise"]


def launch_noise(levels: Collection[tuple[Sequence[float], Sequence[float]]], block: int) -> float:
    """Typical absolute log ratio of two launches of one configuration.

    In the order A B B A A B B A each block of pairs has one new launch, so the step from one
    block's mean log ratio to the next is what that launch changed, and the noise of the passes
    beside it: too large an estimate rather than too small a one. The prompts of a pair are the
    same, so they are not in it.

    Args:
        levels: both arms' figures at each level, in the order of their repeats.
        block: pairs that come from the same two launches.

    Returns:
        The root mean square of the steps; 0 with fewer than two blocks.
    """
    logs = [log_ratios(a, b) for a, b in levels]
    means = [statistics.fmean(pair) for pair in zip(*logs, strict=True)]
    blocks = [statistics.fmean(means[at : at + block]) for at in range(0, len(means), block)]
    steps = [later - earlier for earlier, later in pairwise(blocks)]
    return math.sqrt(statistics.fmean(step**2 for step in steps)) if steps else 0.0
