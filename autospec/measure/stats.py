"""Statistics of repeated passes: summaries, paired ratios with intervals, and verdicts.

Numbers in, numbers out.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autospec.errors import MeasureError
from autospec.evidence import Decision

__all__ = ["Ratio", "Summary", "combine", "ratio", "summarize", "verdict"]

#: Ratios within this of 1 are the same for all practical purposes.
MARGIN = 0.02


@dataclass(frozen=True, slots=True)
class Summary:
    """Repeats of one figure, in its unit.

    Attributes:
        median: of the repeats.
        low: the lowest.
        high: the highest.
        spread: half the range over the median, a fraction: the ``x`` of ``median ± x``.
    """

    median: float
    low: float
    high: float
    spread: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much one arm makes as another.

    Attributes:
        value: estimate.
        low: lower end of its interval.
        high: upper end of its interval.
        n: pairs of passes that it rests on.
    """

    value: float
    low: float
    high: float
    n: int


def summarize(values: Sequence[float]) -> Summary:
    """Median and range of repeats.

    Raises:
        MeasureError: there are none, or one is not a positive number.
    """
    _require_positive(values)
    median, low, high = statistics.median(values), min(values), max(values)
    return Summary(median, low, high, spread=(high - low) / 2 / median)


def ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Ratio a/b of two arms' repeats, paired by repeat.

    The logarithms of the pairs' ratios are averaged, with a Student-t interval over the pairs
    (paired-sample t interval, e.g. NIST/SEMATECH e-Handbook 7.3.1); the result is its exponential.
    Pairing takes out what differs between repeats but not between arms: the prompts. One pair has
    no spread, so its interval is all there is, from 0 to infinity.

    Args:
        a: one positive figure a repeat.
        b: the same of the arm compared with, in the same order.
        confidence: probability that the interval holds the true ratio.

    Raises:
        MeasureError: the arms differ in length or are empty, or a figure is not positive.
    """
    if len(a) != len(b):
        raise MeasureError(f"{len(a)} and {len(b)} repeats cannot be paired, must be as many")
    _require_positive(a)
    _require_positive(b)
    logs = [math.log(x / y) for x, y in zip(a, b, strict=True)]
    n, mean = len(logs), statistics.fmean(logs)
    if n < 2:
        return Ratio(math.exp(mean), 0.0, math.inf, n)
    half = _student_t(0.5 + confidence / 2, n - 1) * statistics.stdev(logs) / math.sqrt(n)
    return Ratio(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)


def combine(ratios: Sequence[Ratio]) -> Ratio:
    """Geometric mean of the ratios at several concurrency levels, with an interval.

    The ends are the geometric means of the ends. The levels come from the same launches and hours,
    so their errors may go together; a mean's standard error is at most the mean of the standard
    errors, so this interval holds whatever the correlation, and is wider than need be without any.

    Raises:
        MeasureError: there are no ratios.
    """
    if not ratios:
        raise MeasureError("no ratios to combine, must be at least one")
    value, low, high = (
        _geometric_mean(ends)
        for ends in zip(*((r.value, r.low, r.high) for r in ratios), strict=True)
    )
    return Ratio(value, low, high, min(r.n for r in ratios))


def verdict(ratio: Ratio, margin: float = MARGIN) -> Decision:
    """What an interval says, the first that holds.

    ``equivalent``: all of it lies within 1 ± ``margin``. This comes first: an interval from 1.001
    to 1.015 does show a difference, but not one worth acting on. ``faster``: all of it lies above
    1. ``slower``: all of it lies below 1. ``inconclusive``: anything else.
    """
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        return "equivalent"
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "inconclusive"


def _student_t(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 - scipy is slow to import and rarely needed

    return float(stdtrit(freedom, probability))


def _geometric_mean(values: Sequence[float]) -> float:
    if min(values) == 0:
        return 0.0
    return math.exp(statistics.fmean(math.log(value) for value in values))


def _require_positive(values: Sequence[float]) -> None:
    if not values:
        raise MeasureError("no repeats, must be at least one")
    for value in values:
        if not (math.isfinite(value) and value > 0):
            raise MeasureError(f"a repeat's figure is {value}, must be a positive number")
