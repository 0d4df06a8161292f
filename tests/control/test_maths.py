"""Acceptance, detectors and step times: pure functions, property by property."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.control.acceptance import Acceptance, accept_lengths, deviation, survivors
from autospec.control.belief import Belief
from autospec.control.costs import Costs
from autospec.control.detectors import Budget, Patience, Shift
from autospec.errors import SchemaError

RATES = st.lists(st.floats(0, 1), min_size=1, max_size=8)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=80), st.integers(1, 6))
def test_survivors_count_requests_that_got_to_each_position(correct: list[int], depth: int) -> None:
    """The definition, spelled out."""
    expected = [sum(value >= position for value in correct) for position in range(depth + 1)]
    assert survivors(correct, depth) == expected


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_accept_length_of_counted_rates_is_the_mean_of_tokens(correct: list[int]) -> None:
    """``E_k`` of the exact conditional shares is ``mean(min(correct, k) + 1)`` at every k."""
    alive = survivors(correct, 5)
    rates = [alive[i + 1] / alive[i] if alive[i] else 0.0 for i in range(5)]
    lengths = accept_lengths(rates)
    for depth in range(6):
        mean = sum(min(value, depth) + 1 for value in correct) / len(correct)
        assert lengths[depth] == pytest.approx(mean)


@given(RATES)
def test_accept_lengths_rise_by_less_and_less(rates: list[float]) -> None:
    """Each further draft adds at most what the one before it did."""
    lengths = accept_lengths(rates)
    gains = [b - a for a, b in pairwise(lengths)]
    assert lengths[0] == 1
    assert all(1 >= a >= b >= 0 for a, b in pairwise(gains))


@given(st.floats(0.05, 0.95), st.integers(1, 6))
def test_deviation_is_that_of_the_distribution(rate: float, depth: int) -> None:
    """Against the sum over all outcomes."""
    chances = [rate**c * ((1 - rate) if c < depth else 1) for c in range(depth + 1)]
    mean = sum(c * chance for c, chance in enumerate(chances))
    variance = sum((c - mean) ** 2 * chance for c, chance in enumerate(chances))
    assert deviation([rate] * depth) == pytest.approx(math.sqrt(variance), abs=1e-6)


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=8), max_size=30), st.integers(1, 4)
)
def test_rates_stay_between_none_and_all(steps: list[list[int]], depth: int) -> None:
    """Whatever is shown, at whatever depth."""
    counts = Acceptance(4)
    for correct in steps:
        counts.learn(survivors(correct, depth), 0.9)
    assert all(0 <= rate <= 1 for rate in counts.rates())


def test_a_position_not_seen_does_as_well_as_the_one_before() -> None:
    """Extrapolation from the last conditional rate."""
    counts = Acceptance(5)
    for _ in range(200):
        counts.learn(survivors([0, 1, 2, 2], 2), 1.0)
    rates = counts.rates()
    assert rates[0] == pytest.approx(0.75, abs=0.01)
    assert rates[1] == pytest.approx(2 / 3, abs=0.01)
    assert rates[2:] == pytest.approx([rates[1]] * 3)


@pytest.mark.parametrize("upward", [False, True])
def test_shift_is_rare_without_a_change_and_quick_with_one(upward: bool) -> None:
    """Threshold 9: fewer alarms than one in exp(9) = 8,103 steps; one soon after a change."""
    chance = random.Random(7)  # noqa: S311  # a seeded load, no secret
    test = Shift(1, upward=upward, ratio=0.6)
    test.expect([0.5])

    def step(rate: float) -> float:
        test.learn([4, sum(chance.random() < rate for _ in range(4))])
        return test.score

    alarms = 0
    for _ in range(16_000):
        if step(0.5) > 9:
            alarms += 1
            test.reset()
    assert alarms <= 2
    test.reset()
    after = 1
    while step(0.9 if upward else 0.1) < 9:
        after += 1
    assert after < 20
    assert test.hits[0] / test.trials[0] == pytest.approx(0.9 if upward else 0.1, abs=0.1)


def test_shift_believes_large_batches_sooner() -> None:
    """Evidence adds up over requests, not over steps."""
    needed = {}
    for batch in (1, 16):
        test = Shift(1, upward=False, ratio=0.6)
        test.expect([0.8])
        needed[batch] = 0
        while test.score < 9:
            test.learn([batch, 0])
            needed[batch] += 1
    assert needed[16] == 1 < needed[1]


@given(st.lists(st.floats(0.02, 3), max_size=200), st.floats(0, 0.1), st.floats(0, 3))
def test_budget_never_spends_more_than_its_share_and_debt(
    prices: list[float], share: float, debt: float
) -> None:
    """Over any course of urgent and ordinary spending."""
    budget = Budget(share, most=4.0, debt=debt)
    spent = 0.0
    for number, price in enumerate(prices):
        budget.earn()
        if budget.spend(price, urgent=number % 2 == 0):
            spent += price
    assert spent <= share * len(prices) + debt + 1e-9


def test_patience_grows_with_changes_that_did_not_pay_and_shrinks_with_those_that_did() -> None:
    """Within its bounds."""
    patience = Patience(0.5, 4.0)
    for _ in range(10):
        patience.change()
    assert patience.value == 4.0
    for _ in range(10):
        patience.gain(100.0)
        patience.change()
    assert patience.value == 0.5


def test_belief_follows_a_slow_drift_and_restarts_after_a_jump() -> None:
    """Without an alarm in the one, with one in the other."""
    chance = random.Random(3)  # noqa: S311  # a seeded load, no secret
    belief = Belief((0, 1), memory_steps=300, memory_requests=3000, ratio=0.6)

    def step(rate: float) -> str | None:
        return belief.learn([int(chance.random() < rate) for _ in range(8)], 1, (11.0, 11.0))

    assert all(step(0.8 - 0.2 * i / 3000) is None for i in range(3000))
    assert belief.lengths[1] == pytest.approx(1.6, abs=0.05)
    assert "fell" in [step(0.1) for _ in range(20)]
    assert belief.lengths[1] == pytest.approx(1.1, abs=0.1)
    assert belief.requests < 200


TABLE = Costs({0: {1: 10.0, 8: 12.0}, 2: {1: 12.0, 8: 20.0}})


@given(st.floats(0.5, 100))
def test_times_are_linear_between_batch_sizes_and_level_beyond(batch: float) -> None:
    """Break-even beyond the measured range is that of the nearest measured batch size."""
    share = min(max((batch - 1) / 7, 0), 1)
    assert TABLE.time_ms(0, batch) == pytest.approx(10 + 2 * share)
    assert TABLE.break_even(2, batch) == pytest.approx((12 + 8 * share) / (10 + 2 * share))


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({1: {1: 10.0}}, "depth 0"),
        ({0: {}}, r"step_time_ms\[0\] is empty"),
        ({0: {1: 0.0}}, r"step_time_ms\[0\]\[1\] is 0.0"),
        ({0: {1: math.nan}}, "is nan"),
        ({0: {0: 10.0}}, "batch size"),
        ({0: {1: 1.0}, -1: {1: 1.0}}, "depth is -1"),
    ],
)
def test_tables_that_mean_nothing_are_refused(
    table: dict[int, dict[float, float]], named: str
) -> None:
    """Naming the place and the value."""
    with pytest.raises(SchemaError, match=named):
        Costs(table)
