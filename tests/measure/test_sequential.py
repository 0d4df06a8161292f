"""However often one looks, equal arms are seldom called different, and true gains are found."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from autospec.errors import MeasureError
from autospec.measure import stats
from autospec.measure.sequential import Look, StoppingRule

RULE = StoppingRule()
Noise = Callable[[np.random.Generator, int], NDArray[np.float64]]
figures = st.floats(0.01, 1e6)
pairs = st.lists(st.tuples(figures, figures), min_size=1, max_size=20)
#: Ten pairs of noise with a mean of 0 and about 1 % a pair.
JITTER = (0.01, -0.012, 0.004, 0.009, -0.006, -0.011, 0.013, -0.002, 0.003, -0.008)


def white(rng: np.random.Generator, passes: int) -> NDArray[np.float64]:
    """2 % of normal noise."""
    return 0.02 * rng.standard_normal(passes)


def bursts(rng: np.random.Generator, passes: int) -> NDArray[np.float64]:
    """The same; one pass of twenty loses a quarter of its speed."""
    return white(rng, passes) + math.log(0.75) * (rng.random(passes) < 0.05)


def drifting(rng: np.random.Generator, passes: int) -> NDArray[np.float64]:
    """Bursts, and each pass is 0.3 % slower than the one before."""
    return bursts(rng, passes) - 0.003 * np.arange(passes)


def compare(noise: Noise, rng: np.random.Generator, gain: float) -> Look:
    """Passes in the order A B B A, with a look after each pair until the rule stops."""
    speeds = np.exp(noise(rng, 2 * RULE.max_pairs)).reshape(-1, 2)
    speeds[1::2] = speeds[1::2, ::-1]
    a, b = (gain * speeds[:, 0]).tolist(), speeds[:, 1].tolist()
    for n in range(RULE.least_pairs, RULE.max_pairs):
        look = RULE.look(a[:n], b[:n])
        if look.stop:
            return look
    return RULE.look(a, b)


def jittered(ratio: float, pairs: int) -> tuple[list[float], list[float]]:
    """Arms with a ratio and a fixed noise of 1 %."""
    return [ratio * math.exp(JITTER[i % len(JITTER)]) for i in range(pairs)], [1.0] * pairs


@pytest.mark.parametrize("noise", [white, drifting])
def test_equal_arms_are_seldom_called_different(noise: Noise) -> None:
    """At most 5 % over all looks, in 150 comparisons (2 standard errors allowed)."""
    rng = np.random.default_rng(4)
    decisions = [compare(noise, rng, 1.0).decision for _ in range(150)]
    false = sum(decision in ("faster", "slower") for decision in decisions)
    assert false / 150 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)


@pytest.mark.parametrize(("gain", "expected"), [(1.05, "faster"), (1 / 1.05, "slower")])
def test_a_true_difference_is_found_soon(gain: float, expected: str) -> None:
    """5 % under noise, drift and bursts: nine of ten, half of them within eight pairs."""
    rng = np.random.default_rng(5)
    looks = [compare(drifting, rng, gain) for _ in range(200)]
    assert sum(look.decision == expected for look in looks) >= 180
    assert np.median([look.ratio.n for look in looks]) <= 8


def test_the_interval_holds_at_every_look_at_once() -> None:
    """The true ratio leaves none of 16 intervals in at least 95 % of 150 comparisons."""
    rng = np.random.default_rng(6)
    missed = 0
    for _ in range(150):
        a, b = (np.exp(white(rng, 20)).tolist() for _ in range(2))
        looks = [RULE.look(a[:n], b[:n]).ratio for n in range(5, 21)]
        missed += not all(look.low <= 1 <= look.high for look in looks)
    assert missed / 150 <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 150)


@pytest.mark.parametrize(
    ("ratio", "expected"), [(1.2, "faster"), (0.8, "slower"), (1.0, "equivalent")]
)
def test_a_clear_verdict_stops_early(ratio: float, expected: str) -> None:
    """Well before the cap, with the interval that shows it."""
    a, b = jittered(ratio, 9)
    look = RULE.look(a, b)
    assert (look.decision, look.stop) == (expected, True)
    assert look.reason == f"{expected} after 9 pairs"
    assert look.ratio.low <= ratio <= look.ratio.high


def test_an_unclear_comparison_goes_on_to_the_cap() -> None:
    """There it is inconclusive, and stops."""
    a, b = jittered(1.02, 20)
    noisy = [x * (1.1 if i % 2 else 0.9) for i, x in enumerate(a)]
    early, last = RULE.look(noisy[:8], b[:8]), RULE.look(noisy, b)
    assert (early.decision, early.stop) == ("inconclusive", False)
    assert early.reason == "inconclusive after 8 pairs of at most 20"
    assert (last.decision, last.stop) == ("inconclusive", True)
    assert last.reason == "inconclusive after 20 pairs, the most allowed"


@pytest.mark.parametrize("n", [1, 2, 4])
def test_too_few_pairs_decide_nothing(n: int) -> None:
    """Not even a tenfold difference."""
    a, b = jittered(10.0, n)
    look = RULE.look(a, b)
    assert (look.decision, look.stop) == ("inconclusive", False)
    assert look.reason == f"{n} of at least 5 pairs"


def test_a_cap_below_the_least_is_the_one_look() -> None:
    """Then the interval is as wide as an ordinary one."""
    a, b = jittered(1.2, 3)
    rule = StoppingRule(max_pairs=3)
    look = rule.look(a, b)
    assert (look.decision, look.stop) == ("faster", True)
    ordinary = stats.ratio(a, b, 1 - rule.alpha)
    assert math.log(look.ratio.high) == pytest.approx(math.log(ordinary.high), rel=0.05)
    assert StoppingRule(max_pairs=1).look(a[:1], b[:1]).decision == "inconclusive"
    assert StoppingRule(max_pairs=1).look(a[:1], b[:1]).stop


def test_more_looks_need_wider_intervals() -> None:
    """What may be tried again must be clearer each time."""
    a, b = jittered(1.0, 6)
    once, often = StoppingRule(max_pairs=6), StoppingRule(max_pairs=20)
    assert often.look(a, b).ratio.high > once.look(a, b).ratio.high > stats.ratio(a, b).high


def test_a_verdict_is_never_finer_than_the_machine() -> None:
    """A clear 4 % means nothing where two launches of one configuration differ by 5 %."""
    a, b = jittered(1.04, 10)
    look = RULE.look(a, b, noise_floor=0.05)
    assert RULE.look(a, b).decision == "faster"
    assert (look.decision, look.stop) == ("inconclusive", False)
    assert look.reason.endswith("; faster but for the machine's noise between launches")
    assert math.log(look.ratio.value / look.ratio.low) > 0.05


@given(pairs=pairs, floor=st.floats(0, 1))
def test_a_noise_floor_only_widens(pairs: list[tuple[float, float]], floor: float) -> None:
    """In quadrature, about the same ratio."""
    a, b = zip(*pairs, strict=True)
    without, with_floor = RULE.look(a, b), RULE.look(a, b, noise_floor=floor)
    assert with_floor.ratio.value == without.ratio.value
    assert with_floor.ratio.low <= without.ratio.low
    assert with_floor.ratio.high >= without.ratio.high


@given(pairs=pairs)
def test_the_arms_are_treated_alike(pairs: list[tuple[float, float]]) -> None:
    """Swapping them mirrors the interval and the verdict."""
    a, b = zip(*pairs, strict=True)
    there, back = RULE.look(a, b), RULE.look(b, a)
    mirrored = {"faster": "slower", "slower": "faster"}
    assert back.ratio.value * there.ratio.value == pytest.approx(1)
    if there.ratio.high < 1e300:
        assert math.log(back.ratio.low or 1e-300) == pytest.approx(
            -math.log(there.ratio.high), abs=1e-6
        )
    if there.decision != "equivalent" and back.decision != "equivalent":
        assert back.decision == mirrored.get(there.decision, there.decision)


def test_levels_get_one_verdict_and_a_ratio_each() -> None:
    """The verdict is on the geometric mean: 1.25 and 0.9 make 1.06."""
    levels = {1: jittered(1.25, 9), 8: jittered(0.9, 9)}
    look = RULE.look_levels(levels)
    assert look.decision == "faster"
    assert look.ratio.value == pytest.approx(math.sqrt(1.25 * 0.9), rel=0.005)
    assert look.levels == {level: RULE.look(*arms).ratio for level, arms in levels.items()}


def test_one_level_is_judged_as_such() -> None:
    """As if there were no levels."""
    a, b = jittered(1.03, 7)
    look = RULE.look_levels({4: (a, b)}, noise_floor=0.01)
    alone = RULE.look(a, b, noise_floor=0.01)
    assert (look.ratio, look.decision, look.reason) == (alone.ratio, alone.decision, alone.reason)


def test_what_befalls_all_levels_of_a_repeat_counts_once() -> None:
    """Levels whose noise goes together are no surer than one of them."""
    arms = jittered(1.05, 8)
    assert RULE.look_levels({1: arms, 8: arms, 32: arms}).ratio.low == pytest.approx(
        RULE.look(*arms).ratio.low
    )


@pytest.mark.parametrize(
    ("levels", "floor", "message"),
    [
        ({}, 0.0, "no levels to judge"),
        ({1: ([1.0], [1.0]), 8: ([1.0] * 2, [1.0] * 2)}, 0.0, "levels have 1 to 2 pairs"),
        ({1: ([1.0], [1.0, 1.0])}, 0.0, "1 and 2 repeats cannot be paired"),
        ({1: ([0.0], [1.0])}, 0.0, "figure is 0.0"),
        ({1: ([1.0] * 21, [1.0] * 21)}, 0.0, "21 pairs to judge, must be at most 20"),
        ({1: ([1.0], [1.0])}, -0.1, "noise floor is -0.1"),
        ({1: ([1.0], [1.0])}, math.nan, "noise floor is nan"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    levels: dict[int, tuple[list[float], list[float]]], floor: float, message: str
) -> None:
    """A verdict on the wrong figures would be worse than none."""
    with pytest.raises(MeasureError, match=message):
        RULE.look_levels(levels, noise_floor=floor)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StoppingRule(least_pairs=0), "least_pairs is 0, must be from 1 to 100"),
        (lambda: StoppingRule(max_pairs=101), "max_pairs is 101, must be from 1 to 100"),
        (lambda: StoppingRule(alpha=0.0), "alpha is 0.0, must be between 0 and 1"),
        (lambda: StoppingRule(margin=1.0), "margin is 1.0, must be between 0 and 1"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    make: Callable[[], StoppingRule], message: str
) -> None:
    """By name and value."""
    with pytest.raises(MeasureError, match=message):
        make()
