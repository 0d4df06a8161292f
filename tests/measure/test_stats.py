"""Intervals hold what they promise, and verdicts say no more than they show."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import MeasureError
from autospec.measure.stats import (
    Ratio,
    combine,
    drift,
    noise,
    outliers,
    ratio,
    summarize,
    verdict,
)

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
    """No mean leaves the range of what it is made of."""
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


@given(pairs=pairs, factor=st.floats(0.1, 10))
def test_a_faster_arm_moves_the_whole_interval(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    """A constant factor on one arm is a factor on the ratio and both its ends."""
    a, b = zip(*pairs, strict=True)
    before, after = ratio(a, b), ratio([x * factor for x in a], b)
    for end in ("value", "low", "high"):
        moved = math.log(getattr(after, end)) - math.log(getattr(before, end))
        assert moved == pytest.approx(math.log(factor), abs=1e-6)


@given(pairs=pairs, confidences=st.lists(st.floats(0.5, 0.99), min_size=2, max_size=2).map(sorted))
def test_more_confidence_needs_a_wider_interval(
    pairs: list[tuple[float, float]], confidences: list[float]
) -> None:
    """The interval of less confidence lies within the one of more."""
    a, b = zip(*pairs, strict=True)
    less, more = (ratio(a, b, confidence) for confidence in confidences)
    assert more.low <= less.low <= less.high <= more.high


@given(pairs=pairs)
def test_the_same_pairs_always_give_the_same_interval(pairs: list[tuple[float, float]]) -> None:
    """Chance has no part in it."""
    a, b = zip(*pairs, strict=True)
    assert ratio(a, b) == ratio(a, b)


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0, math.nan])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    """It is a probability, and neither certain nor impossible."""
    with pytest.raises(MeasureError, match=f"confidence is {confidence}, must be between"):
        ratio([1.0, 2.0], [1.0, 1.0], confidence)


def test_an_interval_without_end_is_infinite_rather_than_an_error() -> None:
    """Two pairs that differ a millionfold say nothing at 99.9 %."""
    found = ratio([1.0, 1e6], [1.0, 1.0], confidence=0.999)
    assert (found.low, found.high) == (0.0, math.inf)


def test_one_burst_moves_the_ratio_little_and_is_not_dropped() -> None:
    """A pass at a tenth of its speed: neither the mean of the logs, 0.78, nor the other pairs'."""
    a, b = [1.04, 1.06, 1.05, 1.03, 1.07, 1.05, 1.04, 1.06], [1.0] * 8
    calm, hit = ratio(a, b), ratio([0.1, *a[1:]], b)
    assert 1.03 < hit.value < calm.value
    assert hit.low < calm.low
    assert hit.n == 8


def test_how_large_a_burst_is_makes_no_difference() -> None:
    """It counts as the furthest that noise would have gone."""
    rest = [1.04, 1.06, 1.05, 1.03, 1.07, 1.05, 1.04]
    hit, hit_harder = (ratio([burst, *rest], [1.0] * 8) for burst in (0.5, 0.1))
    assert hit_harder.low == pytest.approx(hit.low, rel=1e-3)


def test_equal_pairs_do_not_hide_the_others() -> None:
    """Three of five that agree to the last digit, or nearly, are no certainty."""
    for almost in (2.0, 2.0 * (1 + 1e-12)):
        found = ratio([2.0, almost, 2.0, 1.0, 1.0], [1.0] * 5)
        assert found.low < 1 < found.value < 2 < found.high


def test_the_interval_of_few_pairs_is_students() -> None:
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
    """At most 5 % false verdicts either way, in 400 comparisons (4 standard errors allowed)."""
    rng = np.random.default_rng(1)
    verdicts = [verdict(simulate(rng, 1.0, repeats, shared)) for _ in range(400)]
    false = sum(v in ("faster", "slower") for v in verdicts) / len(verdicts)
    assert false <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / len(verdicts))


@pytest.mark.parametrize("tails", [3, 1000])
@pytest.mark.parametrize("repeats", [2, 3, 4, 5, 8])
def test_single_levels_keep_their_promise_too(repeats: int, tails: int) -> None:
    """A 95 % interval misses the truth in 5 % of 1000 comparisons, seldomer with heavy tails."""
    rng = np.random.default_rng(repeats)
    misses = []
    for logs in 0.02 * rng.standard_t(tails, (1000, repeats)):
        found = ratio(np.exp(logs).tolist(), [1.0] * repeats)
        misses.append(not found.low <= 1 <= found.high)
    tolerance = 4 * math.sqrt(0.05 * 0.95 / len(misses))
    assert statistics.fmean(misses) <= 0.05 + tolerance
    if tails == 1000:
        assert statistics.fmean(misses) >= 0.05 - tolerance


def test_a_true_gain_is_found() -> None:
    """+10 % under 2 % noise is called faster in at least nine of ten with five repeats."""
    rng = np.random.default_rng(3)
    verdicts = [verdict(simulate(rng, 1.1, 5, 0.5)) for _ in range(200)]
    assert verdicts.count("faster") >= 180


@given(values=st.lists(figures, min_size=1, max_size=40))
def test_outliers_do_not_depend_on_the_unit(values: list[float]) -> None:
    """They are indices in order, and never half of the values."""
    found = outliers(values)
    assert list(found) == sorted(set(found))
    assert 2 * len(found) <= len(values) - (len(values) % 2)
    assert outliers([4 * value for value in values]) == found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([100.0, 70.0], ()),
        ([100.0, 101.0, 104.0], ()),
        ([100.0, 101.0, 70.0], ()),
        ([100.0, 101.0, 60.0], (2,)),
        ([100.0, 102.0, 70.0, 98.0, 101.0, 99.0], (2,)),
        ([100.0, 102.0, 70.0, 98.0, 101.0, 99.0, 100.0, 140.0, 101.0, 98.0], (2, 7)),
        ([100.0, 100.0, 100.0, 100.0, 99.0], (4,)),
    ],
)
def test_bursts_are_found(values: list[float], expected: tuple[int, ...]) -> None:
    """The fewer the values, the further off one must lie."""
    assert outliers(values) == expected


@pytest.mark.parametrize("n", [3, 4, 5, 8, 13, 20, 40])
def test_normal_noise_seldom_has_outliers(n: int) -> None:
    """In at most one series of twenty, of 1000 (4 standard errors allowed)."""
    rng = np.random.default_rng(n)
    flagged = [bool(outliers((1 + 0.02 * rng.standard_normal(n)).tolist())) for _ in range(1000)]
    assert statistics.fmean(flagged) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1000)


def test_a_trend_is_found_with_its_slope() -> None:
    """Each pass 1 % slower than the first was, with a burst in the middle."""
    found = drift([100.0, 99.1, 97.9, 97.0, 60.0, 95.1, 93.9, 93.0])
    assert found is not None
    assert found.per_pass == pytest.approx(-0.01, rel=0.15)
    assert found.significant


def test_a_rising_trend_has_a_positive_slope() -> None:
    """Five values in order: 2 of 120 orders are as clear."""
    found = drift([1.0, 2.0, 3.0, 4.0, 5.0])
    assert found is not None
    assert found.per_pass == pytest.approx(1 / 3)
    assert found.significant


def test_few_or_equal_passes_show_no_trend() -> None:
    """Four passes in order are one case in twelve, which is not seldom."""
    assert drift([1.0, 2.0, 3.0]) is None
    four, flat = drift([1.0, 2.0, 3.0, 4.0]), drift([2.0] * 9)
    assert four is not None
    assert not four.significant
    assert flat is not None
    assert flat.per_pass == 0
    assert not flat.significant


@pytest.mark.parametrize("n", [5, 8, 20])
def test_noise_seldom_looks_like_a_trend(n: int) -> None:
    """In at most one series of twenty, of 1000 (4 standard errors allowed)."""
    rng = np.random.default_rng(n)
    found = [drift((1 + 0.02 * rng.standard_normal(n)).tolist()) for _ in range(1000)]
    significant = statistics.fmean(bool(trend and trend.significant) for trend in found)
    assert significant <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1000)


def test_the_floor_is_the_difference_between_the_launches() -> None:
    """One launch was 3 % faster in every pass; its passes vary by 10 % with their prompts."""
    first = [100.0, 90.0, 110.0]
    found = noise([value * 1.03 for value in first], first)
    assert found.floor == pytest.approx(math.log(1.03))
    assert found.ratio.value == pytest.approx(1.03)
    assert found.spread == pytest.approx(0.1)


def test_launches_that_agree_by_luck_have_a_floor_still() -> None:
    """It is the standard error of their difference."""
    found = noise([100.0, 104.0, 96.0], [100.0, 96.0, 104.0])
    assert found.ratio.value == pytest.approx(1)
    assert found.floor == pytest.approx(math.log(104 / 96) / math.sqrt(3))


@given(pairs=pairs)
def test_which_launch_came_first_does_not_change_the_floor(
    pairs: list[tuple[float, float]],
) -> None:
    """A difference has no direction."""
    a, b = zip(*pairs, strict=True)
    there, back = noise(a, b), noise(b, a)
    assert there.floor == pytest.approx(back.floor, abs=1e-9)
    assert there.floor >= abs(math.log(there.ratio.value)) * (1 - 1e-9)
    assert there.spread == pytest.approx(back.spread)


def test_one_repeat_shows_no_noise() -> None:
    """There is nothing to say how far two passes differ."""
    with pytest.raises(MeasureError, match="1 repeat, must have at least 2"):
        noise([1.0], [1.0])
