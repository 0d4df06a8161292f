"""The drift alarm: silent while the profile fits, whatever the figures look like, and in time."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.control.costs import Costs
from autospec.control.drift import FALSE_ALARM_BLOCKS, Drift, Misfit, accept_ranges
from autospec.evidence import Acceptance
from autospec.measurement import ServerDelta
from autospec.profile import Choice, Verdict
from tests.test_profile import make_profile

COSTS = Costs({0: {1: 10.0, 8: 12.0}, 3: {1: 15.0, 8: 24.0}})
ACCEPT = {3: (2.0, 3.0)}
#: Blocks that all lie on one side until the alarm: 1.8 to this power is above 40,000.
TO_ALARM = 19


def block(
    slow: float = 1.0, accept: float = 2.5, *, depth: int = 3, batch: float = 4.0
) -> tuple[int, ServerDelta, float]:
    """What makes exactly one block: steps slower by a factor, drafts of some worth."""
    time_ms = COSTS.time_ms(depth, batch) * slow
    tokens = round(200 * batch * (accept if depth else 1))
    return depth, ServerDelta(200, batch, time_ms, tokens), 10.0


def drift() -> Drift:
    """A fresh one."""
    return Drift(COSTS, ACCEPT)


def test_a_server_as_the_profile_says_is_never_alarmed_about() -> None:
    """Classes of prompts in any mixture, steps within the tolerance."""
    watched = drift()
    draw = np.random.default_rng(1)
    for _ in range(2000):
        found = watched.learn(*block(draw.uniform(0.9, 1.1), draw.uniform(2.0, 3.0)))
        assert found == ()
    assert watched.blocks == 2000
    assert watched.misfits == ()


@pytest.mark.parametrize(
    ("slow", "accept", "quantity", "says"),
    [
        (1.4, 2.5, "step_time_ms", "a step takes 26.40 ms at depth 3 and batch size 4.0, the"),
        (0.7, 2.5, "step_time_ms", "profile measured 18.86 ms"),
        (1.0, 1.6, "accept_length", "accept length is 1.60 at depth 3 and batch size 4.0, the"),
        (1.0, 3.6, "accept_length", "the profile measured 2.00 to 3.00"),
    ],
)
def test_each_misfit_is_found_within_twenty_blocks_and_said_once(
    slow: float, accept: float, quantity: str, says: str
) -> None:
    """Acceptance and step times, both ways, with figures a person can check."""
    watched = drift()
    found = [misfit for _ in range(60) for misfit in watched.learn(*block(slow, accept))]
    assert [misfit.quantity for misfit in found] == [quantity]
    assert says in str(found[0])
    assert watched.misfits == tuple(found)
    watched = drift()
    for _ in range(TO_ALARM - 1):
        assert watched.learn(*block(slow, accept)) == ()
    assert watched.learn(*block(slow, accept)) != ()


def test_a_misfit_is_let_go_when_the_profile_fits_again() -> None:
    """Seven blocks that fit use the evidence up; the next misfit is told again."""
    watched = drift()
    for _ in range(TO_ALARM):
        watched.learn(*block(1.4))
    assert watched.misfits
    for _ in range(7):
        watched.learn(*block())
    assert watched.misfits == ()
    assert sum(len(watched.learn(*block(1.4))) for _ in range(TO_ALARM)) == 1


@pytest.mark.parametrize("seed", range(4))
def test_false_alarms_are_rarer_than_said_in_the_worst_case(seed: int) -> None:
    """SIMULATED. Every block lies outside, on a side that a coin tosses: still no trend."""
    draw = np.random.default_rng(seed)
    blocks, alarms, runs = 1000, 0, 20
    for _ in range(runs):
        watched = drift()
        for _ in range(blocks):
            slow, accept = float(draw.choice((0.5, 2.0))), float(draw.choice((1.1, 4.0)))
            if watched.learn(*block(slow, accept)):
                alarms += 1
                break
    # The chance of an alarm within n blocks is at most n over the mean time to one.
    expected = runs * blocks / FALSE_ALARM_BLOCKS
    assert alarms <= expected + 3 * math.sqrt(expected)


@given(stall=st.floats(2, 1e6), every=st.integers(3, 9))
def test_stalls_do_not_raise_it_however_long(stall: float, every: int) -> None:
    """One disturbed block is one vote: a third of them disturbed is no trend."""
    watched = drift()
    for number in range(200):
        assert watched.learn(*block(stall if number % every == 0 else 1.0)) == ()


def test_small_looks_are_gathered_and_other_depths_are_not_mixed_in() -> None:
    """A block is 200 steps and 10 s; a change of depth begins another."""
    watched = drift()
    for _ in range(79):
        watched.learn(3, ServerDelta(20, 4.0, 18.0, 200), 0.125)
    assert watched.blocks == 0
    watched.learn(3, ServerDelta(20, 4.0, 18.0, 200), 0.125)
    assert watched.blocks == 1
    watched.learn(3, ServerDelta(190, 4.0, 18.0, 1900), 20.0)
    watched.learn(0, ServerDelta(190, 4.0, 11.0, 760), 20.0)
    watched.learn(3, ServerDelta(190, 4.0, 18.0, 1900), 20.0)
    assert watched.blocks == 1
    watched.interrupt()
    watched.learn(3, ServerDelta(190, 4.0, 18.0, 1900), 20.0)
    assert watched.blocks == 1


@pytest.mark.parametrize(
    ("depth", "batch", "why"),
    [
        (3, 30.0, "batch size 30.0 is beyond the measured 1 to 8"),
        (5, 4.0, "depth 5 was not measured"),
    ],
)
def test_what_was_not_measured_is_not_judged(depth: int, batch: float, why: str) -> None:
    """No figure of the profile holds there: neither alarm nor all-clear."""
    watched = drift()
    for _ in range(100):
        assert watched.learn(depth, ServerDelta(200, batch, 500.0, 200), 10.0) == ()
    assert watched.blocks == 0
    assert watched.unjudged == why


def test_plain_steps_are_judged_by_their_time_alone() -> None:
    """There is no acceptance in plain decoding."""
    watched = drift()
    found = [m for _ in range(30) for m in watched.learn(*block(1.5, depth=0))]
    assert [(misfit.quantity, misfit.depth) for misfit in found] == [("step_time_ms", 0)]


def test_a_noisy_machine_is_given_its_noise() -> None:
    """Steps may differ by as much as two launches of the same server did."""
    watched = Drift(COSTS, ACCEPT, noise_floor=math.log(1.5))
    for _ in range(100):
        assert watched.learn(*block(1.4)) == ()
    assert any(watched.learn(*block(1.6)) for _ in range(30))


def test_accept_ranges_are_those_of_the_classes_at_each_depth() -> None:
    """A chain's shallower depths follow from its acceptance by position; a tree has its own."""
    chain = SpecConfig("EAGLE3", num_steps=3, topk=1, num_draft_tokens=4)
    rows = (
        Acceptance(chain, 2.2, (0.7, 0.4, 0.1)),
        Acceptance(chain, 2.7, (0.8, 0.6, 0.3), "code"),
        Acceptance(chain, 1.9, (0.6, 0.2, 0.1), "chat"),
    )
    from_chain = make_profile(
        verdict=Verdict("slower", "it is", "tune", chain),
        choice=Choice(PLAIN, {"model_path": "m"}, {}),
    )
    ranges = accept_ranges(replace(from_chain, acceptance=rows))
    assert ranges[3] == (1.9, 2.7)
    assert ranges[1] == pytest.approx((1.6, 1.8))
    assert ranges[2] == pytest.approx((1.8, 2.4))
    assert accept_ranges(replace(from_chain, acceptance=())) == {}


def test_a_misfit_names_one_value_or_two() -> None:
    """A range of one value is not said twice."""
    misfit = Misfit("accept_length", 1.2, 2.0, 2.0, 3, 1.0)
    assert str(misfit).endswith("the profile measured 2.00")
