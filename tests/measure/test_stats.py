"""Intervals hold what they promise, and verdicts say no more than they show."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import MeasureError
from autospec.measure.stats import Ratio, combine, ratio, summarize, verdict

figures = st.floats(0.01, 1e6)
pairs = st.lists(st.tuples(figures, figures), min_size=2, max_size=12)


@given(values=st.lists(figures, min_size=1, max_size=12))
def test_a_summary_holds_its_median_between_its_ends(values: list[float]) -> None:
    """Spread is half the range over the median."""
    summary = summarize(values)
    assert summary.low <= summary.median <= summary.high
    assert summary.spread == pytest.approx((max(values) - min(values)) / 2 / summary.median)


@given(pairs=pairs)
def test_a_ratio_lies_in_its_interval_and_between_its_pairs(
    pairs: list[tuple[float, float]],
) -> None:
    """It is the geometric mean of the pairs' ratios."""
    a, b = zip(*pairs, strict=True)
    found = ratio(a, b)
    assert found.low <= found.value <= found.high
    quotients = [x / y for x, y in pairs]
    assert min(quotients) * (1 - 1e-9) <= found.value <= max(quotients) * (1 + 1e-9)
    assert found.n == len(pairs)


@given(pairs=pairs)
def test_the_ratio_the_other_way_round_is_the_inverse(pairs: list[tuple[float, float]]) -> None:
    """Neither arm is favoured."""
    a, b = zip(*pairs, strict=True)
    there, back = ratio(a, b), ratio(b, a)
    assert back.value * there.value == pytest.approx(1)
    assert math.log(back.low) == pytest.approx(-math.log(there.high), abs=1e-6)


@given(pairs=pairs, factor=st.floats(0.1, 10))
def test_what_slows_both_arms_of_a_pair_changes_nothing(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    """Pairing takes out what differs between repeats alone."""
    a, b = zip(*pairs, strict=True)
    slowed_a, slowed_b = (a[0] * factor, *a[1:]), (b[0] * factor, *b[1:])
    assert ratio(slowed_a, slowed_b).value == pytest.approx(ratio(a, b).value)


def test_the_interval_is_students() -> None:
    """Three pairs with log ratios -0.1, 0, 0.1: 4.3027 standard errors to each side."""
    found = ratio([math.exp(-0.1), 1.0, math.exp(0.1)], [1.0] * 3)
    assert found.value == pytest.approx(1)
    assert math.log(found.high) == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    assert ratio([1.0, 1.2], [1.0] * 2, confidence=0.5).high < ratio([1.0, 1.2], [1.0] * 2).high


def test_one_pair_has_an_interval_without_ends() -> None:
    """One measurement shows no noise, so nothing follows from it."""
    found = ratio([3.0], [2.0])
    assert (found.low, found.high) == (0.0, math.inf)
    assert found.value == pytest.approx(1.5)
    assert verdict(found) == "inconclusive"
    assert verdict(combine([found, Ratio(1.5, 1.4, 1.6, 3)])) == "inconclusive"


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([1.0], [1.0, 2.0], "1 and 2 repeats cannot be paired"),
        ([], [], "no repeats"),
        ([1.0, 0.0], [1.0, 1.0], "figure is 0.0"),
        ([1.0, 1.0], [1.0, math.nan], "figure is nan"),
        ([1.0, math.inf], [1.0, 1.0], "figure is inf"),
    ],
)
def test_figures_that_make_no_ratio_are_refused(
    a: list[float], b: list[float], message: str
) -> None:
    """A missing or senseless figure is an error, not a verdict."""
    with pytest.raises(MeasureError, match=message):
        ratio(a, b)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.001, 1.015, "equivalent"),
        (0.985, 0.999, "equivalent"),
        (0.98, 1.02, "equivalent"),
        (1.001, 1.03, "faster"),
        (1.3, 1.5, "faster"),
        (0.97, 0.999, "slower"),
        (0.4, 0.5, "slower"),
        (0.97, 1.01, "inconclusive"),
        (1.0, 1.03, "inconclusive"),
        (0.97, 1.0, "inconclusive"),
        (0.0, math.inf, "inconclusive"),
    ],
)
def test_the_verdict_says_what_all_of_the_interval_shows(
    low: float, high: float, expected: str
) -> None:
    """A difference too small to act on is equivalence, even when it is certain."""
    assert verdict(Ratio((low * min(high, 9)) ** 0.5, low, high, 5)) == expected


def test_a_wider_margin_makes_more_equivalent() -> None:
    """The margin is the caller's."""
    assert verdict(Ratio(1.03, 1.01, 1.04, 5)) == "faster"
    assert verdict(Ratio(1.03, 1.01, 1.04, 5), margin=0.05) == "equivalent"


def test_levels_combine_to_their_geometric_mean() -> None:
    """Ends with ends; as many pairs as the level with the fewest."""
    combined = combine([Ratio(1.0, 0.5, 2.0, 3), Ratio(4.0, 2.0, 8.0, 5)])
    assert (combined.value, combined.low, combined.high) == pytest.approx((2, 1, 4))
    assert combined.n == 3
    with pytest.raises(MeasureError, match="no ratios"):
        combine([])


@given(repeats=st.lists(pairs, min_size=1, max_size=4))
def test_a_combined_ratio_lies_in_its_interval(repeats: list[list[tuple[float, float]]]) -> None:
    """And between the ratios combined."""
    ratios = [ratio([a for a, _ in pairs], [b for _, b in pairs]) for pairs in repeats]
    combined = combine(ratios)
    values = [r.value for r in ratios]
    assert combined.low <= combined.value <= combined.high
    assert min(values) * (1 - 1e-9) <= combined.value <= max(values) * (1 + 1e-9)


def simulate(rng: np.random.Generator, effect: float, repeats: int, shared: float) -> Ratio:
    """Two levels of two arms with 2 % noise; ``shared`` of its deviation is common to levels."""
    own = math.sqrt(1 - shared**2)
    levels = []
    common = [rng.normal(0, 0.02) for _ in range(repeats)]
    for _ in range(2):
        prompts = [rng.normal(0, 0.2) for _ in range(repeats)]
        a = [
            effect * math.exp(p + shared * c + own * rng.normal(0, 0.02))
            for p, c in zip(prompts, common, strict=True)
        ]
        b = [math.exp(p + rng.normal(0, 0.02)) for p in prompts]
        levels.append(ratio(a, b))
    return combine(levels)


@pytest.mark.parametrize("repeats", [3, 5])
@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_equal_arms_are_seldom_called_different(repeats: int, shared: float) -> None:
    """At most 5 % false verdicts either way, in 2000 comparisons (4 standard errors allowed)."""
    rng = np.random.default_rng(1)
    verdicts = [verdict(simulate(rng, 1.0, repeats, shared)) for _ in range(2000)]
    false = sum(v in ("faster", "slower") for v in verdicts) / len(verdicts)
    assert false <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / len(verdicts))


def test_single_levels_keep_their_promise_too() -> None:
    """A 95 % interval of one level misses the truth in 5 % of 4000 comparisons."""
    rng = np.random.default_rng(2)
    misses = []
    for _ in range(4000):
        a = [math.exp(rng.normal(0, 0.02)) for _ in range(3)]
        b = [math.exp(rng.normal(0, 0.02)) for _ in range(3)]
        found = ratio(a, b)
        misses.append(not found.low <= 1 <= found.high)
    assert statistics.fmean(misses) == pytest.approx(0.05, abs=4 * math.sqrt(0.05 * 0.95 / 4000))


def test_a_true_gain_is_found() -> None:
    """+10 % under 2 % noise is called faster in at least nine of ten with five repeats."""
    rng = np.random.default_rng(3)
    verdicts = [verdict(simulate(rng, 1.1, 5, 0.5)) for _ in range(300)]
    assert verdicts.count("faster") >= 270
