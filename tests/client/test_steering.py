"""A policy at work on requests: what it is shown, and where requests go."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.client.setup import make_steering
from autospec.client.steering import PATIENCE_S, SHOWN, Steering, sample
from autospec.control.controller import Controller
from autospec.control.policy import Setting
from tests.client.helpers import DEPTH, Told, measured_profile

histograms = st.lists(st.integers(0, 60), min_size=1, max_size=9)


def steer(policy: Told, *, routes: bool = True) -> Steering:
    """The policy at work."""
    return Steering(Controller(Setting((0, DEPTH)), policy), DEPTH, routes=routes)


@given(histograms)
def test_sample_is_part_of_what_was_seen_and_like_the_whole(histogram: list[int]) -> None:
    """Few values stand for all: rising, real ones, and their mean is within one step's share."""
    values = sample(histogram, 8)
    everything = [at for at, count in enumerate(histogram) for _ in range(count)]
    assert values == sorted(values)
    assert len(values) == min(SHOWN, len(everything))
    assert set(values) <= set(everything)
    if everything:
        mean = sum(everything) / len(everything)
        assert abs(sum(values) / len(values) - mean) <= 8 / len(values)


@given(histograms, st.integers(1, 4))
def test_sample_is_never_deeper_than_the_policy_knows(histogram: list[int], depth: int) -> None:
    """A server that drafts deeper shows what is known of the first drafts."""
    assert max(sample(histogram, depth), default=0) <= depth


def test_finished_request_is_one_step_with_its_drafts() -> None:
    """The policy sees depth, correct drafts and requests in flight."""
    policy = Told()
    steering = steer(policy)
    steering.learn(steering.choose(0.0), [1, 2, 3], 5, 7.0)
    seen = policy.seen[-1]
    assert (seen.batch_size, seen.depth, seen.correct, seen.time_s) == (5, DEPTH, [1, 2, 3], 7.0)


def test_settled_decision_moves_new_requests_and_is_an_event() -> None:
    """Down and up again, each counted once."""
    policy = Told()
    steering = steer(policy)
    ticket = steering.choose(0.0)
    policy.depth = 0
    events = steering.learn(ticket, [0], 1, 0.0)
    assert [event.action for event in events] == ["plain"]
    ticket = steering.choose(0.0)
    assert ticket.target == "plain"
    policy.depth = DEPTH
    assert [e.action for e in steering.learn(ticket, [], 1, 0.0)] == ["speculative"]
    assert (steering.fallbacks, steering.returns) == (1, 1)


def test_requests_of_an_earlier_decision_teach_nothing() -> None:
    """What was in flight when the policy moved says nothing about where it moved to."""
    policy = Told()
    steering = steer(policy)
    late, last = steering.choose(0.0), steering.choose(0.0)
    policy.depth = 0
    steering.learn(last, [0], 2, 0.0)
    before = len(policy.seen)
    assert steering.learn(late, [3], 1, 0.0) == []
    assert len(policy.seen) == before


def test_probe_is_one_request_and_its_answer_is_what_the_policy_sees_next() -> None:
    """While a trial is out others go on as before, and no step passes."""
    policy = Told(0)
    steering = steer(policy)
    policy.depth, policy.want = DEPTH, "probe"
    steering.learn(steering.choose(0.0), [], 1, 0.0)
    assert not steering.choose(0.0, may_probe=False).probe
    probe, other = steering.choose(0.0), steering.choose(0.0)
    assert (probe.target, probe.probe) == ("speculative", True)
    assert (other.target, other.probe) == ("plain", False)
    before = len(policy.seen)
    steering.learn(other, [], 1, 0.0)
    assert len(policy.seen) == before
    policy.depth, policy.want = 0, "settle"
    steering.learn(probe, [0, 1, 2, 3], 2, 0.0)
    assert policy.seen[-1].depth == DEPTH
    assert steering.choose(0.0).target == "plain"


def test_trial_is_shown_in_parts_as_long_as_the_policy_asks() -> None:
    """One request that was sent to learn from says much, and all parts are like the whole."""
    policy = Told(0)
    steering = steer(policy)
    policy.depth, policy.want = DEPTH, "probe"
    steering.learn(steering.choose(0.0), [], 1, 0.0)
    probe = steering.choose(0.0)
    before = len(policy.seen)
    steering.learn(probe, [0, 0, 0, 0, 3, 3, 3, 3], 1, 0.0)
    assert [sorted(seen.correct) for seen in policy.seen[before:]] == [[0, 3]] * 4
    assert steering.choose(0.0).probe


def test_lost_trial_does_not_hold_the_policy_for_ever() -> None:
    """A trial whose end nobody reports is given up, and one that fails is over."""
    policy = Told(0)
    steering = steer(policy)
    policy.depth, policy.want = DEPTH, "probe"
    steering.learn(steering.choose(0.0), [], 1, 0.0)
    assert steering.choose(0.0).probe
    ticket = steering.choose(PATIENCE_S + 1)
    before = len(policy.seen)
    steering.learn(ticket, [], 1, 0.0)
    assert len(policy.seen) == before + 1
    probe = steering.choose(0.0)
    assert probe.probe
    steering.learn(probe, None, 1, 0.0)
    assert policy.seen[-1].correct == ()


def test_without_a_choice_the_policy_is_asked_and_nothing_moves() -> None:
    """Observing is deciding without acting."""
    policy = Told(0)
    steering = steer(policy, routes=False)
    policy.want = "probe"
    assert [steering.choose(0.0).target for _ in range(3)] == ["speculative"] * 3
    policy.want = "settle"
    policy.depth = DEPTH
    assert steering.learn(steering.choose(0.0), [3], 1, 0.0)[0].action == "speculative"


@pytest.mark.parametrize("seed", range(8))
def test_throughput_policy_falls_back_and_returns_on_requests(seed: int) -> None:
    """Simulated: prompts differ; acceptance collapses after 300 requests, and recovers."""
    chance = random.Random(seed)  # noqa: S311  # a seeded load, no secret
    steering = make_steering(measured_profile(), None, None, routes=True)
    sides, probes = [], 0
    for number in range(1500):
        rate = 0.15 if 300 <= number < 900 else 0.75
        rate = min(max(chance.gauss(rate, 0.1), 0.0), 1.0)
        ticket = steering.choose(float(number))
        probes += ticket.probe
        sides.append(ticket.target)
        values = [] if ticket.target == "plain" else _drafts(chance, rate)
        steering.learn(ticket, values, 4, float(number))
    assert sides[100:300].count("plain") == 0
    assert sides[340:880].count("speculative") <= 0.05 * 540
    assert sides[1100:].count("speculative") >= 0.98 * 400
    assert (steering.fallbacks, steering.returns) == (1, 1)
    assert probes >= 1


def _drafts(chance: random.Random, rate: float) -> list[int]:
    histogram = [0] * (DEPTH + 1)
    for _ in range(40):
        correct = 0
        while correct < DEPTH and chance.random() < rate:
            correct += 1
        histogram[correct] += 1
    return sample(histogram, DEPTH)
