"""Step times that a server corrects: by the median, only when it is sure, bounded in memory."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.control.costs import Costs
from autospec.control.kinds.throughput import Throughput
from autospec.control.policy import Observation, Setting
from autospec.control.refine import ENOUGH, LiveCosts

PROFILE = Costs({0: {1.0: 10.0, 8.0: 16.0}, 3: {1.0: 16.0, 8.0: 30.0}})


def test_profile_holds_until_the_server_has_shown_enough() -> None:
    """Seven steps are a few too few, whatever they say."""
    live = LiveCosts(PROFILE)
    for _ in range(ENOUGH - 1):
        live.learn(3, 1, 32.0)
    assert live.time_ms(3, 1) == 16.0
    assert not live.known(3, 1)
    live.learn(3, 1, 32.0)
    assert live.time_ms(3, 1) == pytest.approx(32.0)
    assert live.known(3, 1)
    assert live.version == 1


def test_correction_reaches_batch_sizes_nobody_saw_and_no_other_depth() -> None:
    """The nearest power of two speaks for its neighbours."""
    live = LiveCosts(PROFILE)
    for _ in range(ENOUGH):
        live.learn(3, 4, PROFILE.time_ms(3, 4) * 2)
    assert live.time_ms(3, 8) == pytest.approx(60.0)
    assert live.time_ms(3, 1) == pytest.approx(32.0)
    assert live.time_ms(0, 4) == PROFILE.time_ms(0, 4)
    assert live.break_even(3, 1) == pytest.approx(3.2)


@given(st.lists(st.floats(0.985, 1.015), min_size=20, max_size=60))
def test_noise_corrects_nothing(noise: list[float]) -> None:
    """Differences within the machine's own are left alone."""
    live = LiveCosts(PROFILE, noise=0.02)
    for factor in noise:
        live.learn(0, 1, 10.0 * factor)
    assert live.time_ms(0, 1) == 10.0
    assert live.version == 0


@given(st.lists(st.booleans(), min_size=60, max_size=60).filter(lambda stalls: sum(stalls) < 20))
def test_stalls_correct_nothing(stalls: list[bool]) -> None:
    """A third of all steps may take fifty times as long."""
    live = LiveCosts(PROFILE)
    for _ in range(ENOUGH):
        live.learn(0, 1, 10.0)
    for stall in stalls:
        live.learn(0, 1, 500.0 if stall else 10.0)
    assert live.time_ms(0, 1) == pytest.approx(10.0)


def test_memory_is_bounded_and_the_latest_steps_count() -> None:
    """A machine that became slower is believed after a while."""
    live = LiveCosts(PROFILE)
    for ms in [10.0] * 5000 + [20.0] * 64:
        live.learn(0, 1, ms)
    assert live.time_ms(0, 1) == pytest.approx(20.0)
    assert sum(len(cell.ratios) for cell in live._cells.values()) == 64


@given(st.lists(st.tuples(st.integers(1, 60), st.floats(0.6, 2.5)), min_size=1, max_size=12))
def test_machine_that_changes_its_pace_moves_no_break_even(bursts: list[tuple[int, float]]) -> None:
    """Slow and fast stretches of any length, one depth in use and the other seen now and then."""
    live = LiveCosts(PROFILE)
    for depth in (0, 3):
        for _ in range(64):
            live.learn(depth, 1, PROFILE.time_ms(depth, 1))
    for length, pace in bursts:
        for step in range(length):
            depth = 0 if step % 16 == 15 else 3
            live.learn(depth, 1, pace * PROFILE.time_ms(depth, 1))
    assert live.break_even(3, 1) == pytest.approx(PROFILE.break_even(3, 1), rel=0.05)


def test_depth_that_became_slower_than_the_others_is_told_from_a_slow_machine() -> None:
    """Steps of the others beside it show which of the two it is."""
    live = LiveCosts(PROFILE)
    for depth in (0, 3):
        for _ in range(64):
            live.learn(depth, 1, PROFILE.time_ms(depth, 1))
    for step in range(2000):
        depth = 0 if step % 16 == 15 else 3
        live.learn(depth, 1, (1.0 if depth == 0 else 1.4) * PROFILE.time_ms(depth, 1))
    assert live.break_even(3, 1) == pytest.approx(1.4 * PROFILE.break_even(3, 1), rel=0.05)
    assert live.time_ms(0, 1) == pytest.approx(10.0, rel=0.05)
    assert live.time_ms(3, 1) == pytest.approx(1.4 * 16.0, rel=0.05)


def test_what_the_profile_does_not_know_is_passed_over() -> None:
    """Depths without a row, and clocks that stood still."""
    live = LiveCosts(PROFILE)
    live.learn(5, 1, 20.0)
    live.learn(0, 1, 0.0)
    assert live.version == 0
    assert live.depths == (0, 3)


@pytest.mark.parametrize("wrong", [0.5, 2.0])
@pytest.mark.parametrize("depth", [0, 3])
@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_profile_wrong_by_two_ends_in_the_same_choices(
    wrong: float, depth: int, rate: float
) -> None:
    """After 2,000 steps the policy settles as it would have with the right one. Simulated."""
    assert settled(Costs(_times(depth, wrong)), rate) == settled(PROFILE, rate)


def _times(depth: int, wrong: float) -> dict[int, dict[float, float]]:
    return {
        deep: {
            batch: PROFILE.time_ms(deep, batch) * (wrong if deep == depth else 1.0)
            for batch in (1.0, 8.0)
        }
        for deep in (0, 3)
    }


def settled(believed: Costs, rate: float) -> set[int]:
    """The depths of the last 300 steps but for those run to learn from."""
    chance = random.Random(7)  # noqa: S311  # a world for a test
    live = LiveCosts(believed)
    policy = Throughput(Setting((0, 3), live), Throughput.Parameters())
    depths: list[int] = []
    observation = Observation(1)
    for step in range(2300):
        decision = policy.decide(observation)
        depth = decision.depth
        # The plugin looks now and then at what it has not timed yet.
        unknown = [deep for deep in (0, 3) if not live.known(deep, 1)]
        if unknown and step % 32 == 0:
            depth = unknown[0]
        elif decision.want == "settle" and step >= 2000:
            depths.append(depth)
        live.learn(depth, 1, PROFILE.time_ms(depth, 1) * chance.uniform(0.98, 1.03))
        right = 0
        while right < depth and chance.random() < rate:
            right += 1
        observation = Observation(1, depth, (right,) if depth else ())
    return set(depths)
