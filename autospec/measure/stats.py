"""Statistics of repeated passes: summaries, paired ratios with intervals, and verdicts.

Numbers in, numbers out. What is odd in them is reported; no figure is ever dropped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autospec.errors import MeasureError
from autospec.evidence import Decision
from autospec.measure import robust

__all__ = [
    "Drift",
    "Noise",
    "Ratio",
    "Summary",
    "combine",
    "drift",
    "from_logs",
    "log_ratios",
    "noise",
    "outliers",
    "ratio",
    "summarize",
    "verdict",
]

#: Ratios within this of 1 are the same for all practical purposes.
MARGIN = 0.02

#: How often passes without a trend may look as if they had one.
_DRIFT_LEVEL = 0.05


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


@dataclass(frozen=True, slots=True)
class Drift:
    """A trend over the order in which passes were made.

    Attributes:
        per_pass: slope, a fraction of the median a pass; negative when passes get slower.
        significant: whether passes without a trend look like this in at most 5 % of cases.
    """

    per_pass: float
    significant: bool


@dataclass(frozen=True, slots=True)
class Noise:
    """What a comparison of plain decoding with itself shows of the machine.

    Attributes:
        ratio: of the two arms.
        floor: absolute log ratio below which a difference may be the machine's own.
        spread: coefficient of variation of an arm's passes, root mean square of the two arms.
    """

    ratio: Ratio
    floor: float
    spread: float


def summarize(values: Sequence[float]) -> Summary:
    """Median and range of repeats.

    Raises:
        MeasureError: there are none, or one is not a positive number.
    """
    _require_positive(values)
    median, low, high = statistics.median(values), min(values), max(values)
    return Summary(median, low, high, spread=(high - low) / 2 / median)


def ratio(
    a: Sequence[float], b: Sequence[float], confidence: float = 0.95, *, noise_floor: float = 0.0
) -> Ratio:
    """Ratio a/b of two arms' repeats, paired by repeat.

    The logarithms of the pairs' ratios are averaged so that one burst cannot move the mean far
    (``robust.location``: from five pairs on a far pair is pulled in, never dropped), and a
    studentized bootstrap gives the interval (``robust.critical``; with fewer than five pairs it is
    Student's). Pairing takes out what differs between repeats but not between arms: the prompts.
    One pair has no spread, so its interval is all there is, from 0 to infinity.

    Args:
        a: one positive figure a repeat.
        b: the same of the arm compared with, in the same order.
        confidence: probability that the interval holds the true ratio.
        noise_floor: as ``from_logs`` takes it.

    Raises:
        MeasureError: the arms differ in length or are empty, or a figure is not positive; or the
            confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise MeasureError(f"confidence is {confidence}, must be between 0 and 1")
    logs = log_ratios(a, b)
    reach = robust.critical(len(logs), 1 - confidence) if len(logs) > 1 else math.inf
    return from_logs(logs, reach, noise_floor)


def log_ratios(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """Logarithm of each pair's ratio.

    Raises:
        MeasureError: the arms differ in length or are empty, or a figure is not positive.
    """
    if len(a) != len(b):
        raise MeasureError(f"{len(a)} and {len(b)} repeats cannot be paired, must be as many")
    _require_positive(a)
    _require_positive(b)
    return [math.log(x / y) for x, y in zip(a, b, strict=True)]


def from_logs(logs: Sequence[float], reach: float, noise_floor: float = 0.0) -> Ratio:
    """Ratio whose logarithm is the robust mean of these, with an interval.

    Args:
        logs: log ratio of each pair.
        reach: half the interval's width in standard errors.
        noise_floor: half a width of its own, an absolute log ratio, added in quadrature.
    """
    mean, error = _location(logs)
    half = math.hypot(reach * error, noise_floor)
    return Ratio(_exp(mean), _exp(mean - half), _exp(mean + half), len(logs))


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


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Indices of values far from the rest, to be reported; nothing here takes them out.

    Far is a distance from the median, in median absolute deviations, that the furthest of as many
    figures of normal noise reaches in one series of twenty (``robust.outlier_limit``: 22 standard
    deviations for three figures, where any two may lie close by chance, 7.7 for five, 4.5 for ten,
    3.8 for forty; the customary 3.5, Iglewicz and Hoaglin 1993, would flag one of every five
    clean series of five). Fewer than three values have no outliers.

    Raises:
        MeasureError: there are none, or one is not a positive number.
    """
    _require_positive(values)
    if len(values) < 3:
        return ()
    limit = robust.outlier_limit(len(values))
    distances = robust.scaled_distances(values)
    return tuple(i for i, distance in enumerate(distances) if distance > limit)


def drift(values: Sequence[float]) -> Drift | None:
    """Trend over the order of the passes; ``None`` for fewer than four.

    The slope is the median of all pairs' slopes (Theil 1950, Sen 1968), so a burst does not look
    like a trend. It is significant when Kendall's count of pairs in order (Mann 1945) is as far
    from even in at most 5 % of all orders of the values, exactly. Four values cannot show one.

    Raises:
        MeasureError: there are none, or one is not a positive number.
    """
    _require_positive(values)
    n = len(values)
    if n < 4:
        return None
    steps = [(values[j] - values[i], j - i) for j in range(n) for i in range(j)]
    slope = statistics.median(step / apart for step, apart in steps)
    balance = sum((step > 0) - (step < 0) for step, _ in steps)
    return Drift(slope / statistics.median(values), _chance_of_order(n, balance) <= _DRIFT_LEVEL)


def noise(a: Sequence[float], b: Sequence[float]) -> Noise:
    """What an A/A comparison shows: two arms of one configuration, paired by repeat.

    The floor is the difference seen, and at least the standard error of that difference: two
    launches that agree by luck do not show that launches agree better than their passes can tell.
    It is one draw of what two launches do to each other, so a launch may now and then do more.

    Raises:
        MeasureError: the arms differ in length, have fewer than two repeats, or a figure is not
            positive.
    """
    found = ratio(a, b)
    if found.n < 2:
        raise MeasureError("an A/A comparison has 1 repeat, must have at least 2 to show noise")
    difference, error = _location(log_ratios(a, b))
    spreads = [statistics.stdev(arm) / statistics.fmean(arm) for arm in (a, b)]
    return Noise(
        found,
        floor=max(abs(difference), error),
        spread=math.sqrt(statistics.fmean(spread**2 for spread in spreads)),
    )


def _location(logs: Sequence[float]) -> tuple[float, float]:
    """Robust mean and its standard error; one figure has an unbounded one."""
    if len(logs) == 1:
        return logs[0], math.inf
    return robust.location(logs)


def _chance_of_order(n: int, balance: int) -> float:
    """Share of the orders of ``n`` values whose rises less falls are this far from even.

    The number of orders by falls, one value more at a time: the k-th adds 0 to k-1 falls.
    """
    orders = [1]
    for k in range(2, n + 1):
        longer = [0] * (len(orders) + k - 1)
        for falls, count in enumerate(orders):
            for more in range(k):
                longer[falls + more] += count
        orders = longer
    pairs = n * (n - 1) // 2
    far = sum(c for falls, c in enumerate(orders) if abs(pairs - 2 * falls) >= abs(balance))
    return far / math.factorial(n)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


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
