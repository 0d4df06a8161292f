"""Between the server's loop and the policy, with neither of them real."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.control.controller import Controller
from autospec.control.costs import Costs
from autospec.control.policy import Decision, Observation, Setting
from autospec.control.refine import ENOUGH, LiveCosts
from autospec.control.trace import read_trace
from autospec.plugin.plan import Plan
from autospec.plugin.recorder import Recorder
from autospec.plugin.steering import Steering
from tests.plugin.forced import Failing, Forced, Lost

SETTING = Setting((0, 1, 3))
COSTS = Costs({0: {1.0: 10.0}, 1: {1.0: 14.0}, 3: {1.0: 30.0}})


class Told:
    """Says what it is told to, and keeps what it was shown."""

    def __init__(self, *depths: int) -> None:
        self.depths = list(depths)
        self.seen: list[Observation] = []

    def decide(self, observation: Observation) -> Decision:
        """The next depth."""
        self.seen.append(observation)
        return Decision(self.depths.pop(0) if self.depths else 3, "told")


def steering(policy: Any, **options: Any) -> Steering:
    """A server started at depth 3, steered by a policy."""
    controller = Controller(SETTING, policy, static_depth=3)
    return Steering(Plan(controller, "depth", SETTING.depths, "steers"), 3, **options)


def test_policy_sees_the_step_before() -> None:
    """Its depth and its correct drafts; after a plain step nothing."""
    policy = Told(3, 0, 1)
    steered = steering(policy)
    assert steered.choose(2) == 3
    steered.learn([3, 1])
    assert steered.choose(2) == 0
    steered.learn([0, 0])
    assert steered.choose(1) == 1
    assert policy.seen == [Observation(2), Observation(2, 3, [3, 1]), Observation(1, 0, ())]


def test_policy_sees_shadow_drafts_once() -> None:
    """Those that ended in the step before; they are counted, and so is their time."""
    policy = Told(0, 0, 0)
    steered = steering(policy, work_clock=lambda: 0.0)
    steered.choose(2)
    steered.shadow([3, 0], 6e-6)
    steered.learn([0, 0])
    steered.choose(2)
    steered.shadow([], 3e-6)
    steered.choose(2)
    assert [list(seen.shadow) for seen in policy.seen] == [[], [3, 0], []]
    assert steered.counters["shadow_drafts"] == 2
    assert steered.decision_us == 3.0


@pytest.mark.parametrize(
    ("kind", "wants"),
    [("throughput", True), ("mine:Policy", True), ("off", False), ("threshold", False)],
)
def test_shadow_drafts_are_made_for_whom_they_tell_something(kind: str, *, wants: bool) -> None:
    """And for nobody once the policy gave up."""
    controller = Controller(SETTING, Told(), static_depth=3)
    steered = Steering(Plan(controller, "on-off", (0, 3), "steers", kind=kind), 3)
    assert steered.wants_shadows is wants
    steered.fail("a fault")
    assert not steered.wants_shadows


def test_results_may_come_a_step_late() -> None:
    """Under overlap scheduling a step is launched before the one before it is known."""
    policy = Told(3, 1, 0, 0)
    steered = steering(policy)
    steered.choose(1)
    steered.choose(1)
    steered.learn([2])
    steered.choose(1)
    steered.learn([1])
    steered.choose(1)
    assert [(seen.depth, list(seen.correct)) for seen in policy.seen] == [
        (0, []),
        (0, []),
        (3, [2]),
        (1, [1]),
    ]


def test_time_of_a_step_counts_what_comes_after_it_too() -> None:
    """A clock that ticks once a look: two looks before the step and two after it."""
    ticks = iter(range(1000))
    steered = steering(Told(3, 3), work_clock=lambda: next(ticks) * 1e-6)
    assert steered.decision_us is None
    for _ in range(2):
        steered.choose(1)
        steered.learn([1])
    assert steered.decision_us == 2.0


def test_step_whose_results_never_came_is_forgotten() -> None:
    """Results that fit no step are taken for none's."""
    policy = Told(3, 3, 3)
    steered = steering(policy)
    steered.choose(4)
    steered.choose(2)
    steered.learn([1, 1])
    steered.choose(2)
    assert policy.seen[-1] == Observation(2)
    steered.learn([1, 1])
    steered.choose(2)
    assert policy.seen[-1] == Observation(2, 3, [1, 1])


@given(st.lists(st.tuples(st.sampled_from([0, 1, 3]), st.integers(1, 4)), max_size=40))
def test_counters_add_up(steps: list[tuple[int, int]]) -> None:
    """Every step is plain or speculative, and switches are falls, recoveries or between depths."""
    steered = steering(Told(*(depth for depth, _ in steps)))
    for _, batch in steps:
        steered.learn([0] * batch)
        steered.choose(batch)
    counters = steered.counters
    assert steered.steps == len(steps)
    assert counters["plain_steps"] == sum(depth == 0 for depth, _ in steps)
    changes = sum(a != b for (a, _), (b, _) in pairwise(steps))
    assert counters["switches"] == changes
    assert counters["fallbacks"] + counters["recoveries"] <= changes


def test_policy_that_raises_leaves_the_static_depth(caplog: pytest.LogCaptureFixture) -> None:
    """One line in the log, a reason to be read, and no exception."""
    policy = Failing(SETTING, Failing.Parameters())
    steered = steering(policy)
    with caplog.at_level(logging.WARNING):
        depths = [steered.choose(1) for _ in range(60)]
    assert depths[-40:] == [3] * 40
    assert not steered.active
    assert "a fault in a user's policy" in steered.reason
    assert len(caplog.records) == 1


def test_depth_that_no_server_has_becomes_one_that_it_has() -> None:
    """The next lower one."""
    policy = Lost(SETTING, Lost.Parameters())
    steered = steering(policy)
    assert {steered.choose(1) for _ in range(20)} <= {0, 1, 3}
    assert steered.active


def test_depth_that_could_not_be_made_ready_is_done_without() -> None:
    """As where memory for its graphs was missing."""
    steered = steering(Told(1, 3, 0))
    steered.drop(1, MemoryError("no room"))
    assert [steered.choose(1) for _ in range(3)] == [0, 3, 0]
    steered.drop(0, MemoryError("no room"))
    assert steering_depths(steered, Told(0, 1)) == [3, 3]


def steering_depths(steered: Steering, policy: Told) -> list[int]:
    """The depths that a steering makes of what a policy says."""
    other = steering(policy)
    other.depths = steered.depths
    return [other.choose(1) for _ in range(len(policy.depths))]


def test_fault_of_our_own_is_no_fault_of_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever breaks in here, the step runs at the static depth."""
    steered = steering(Forced(SETTING, Forced.Parameters()))

    def broken(*_: object) -> int:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(Steering, "_count", broken)
    assert [steered.choose(1) for _ in range(3)] == [3, 3, 3]
    assert "ZeroDivisionError: broken" in steered.reason


def test_same_observations_make_the_same_decisions() -> None:
    """So ranks of a tensor-parallel server never part."""
    one, other = (steering(Forced(SETTING, Forced.Parameters())) for _ in range(2))
    for step in range(200):
        assert one.choose(1 + step % 5) == other.choose(1 + step % 5)
        for steered in (one, other):
            steered.learn([step % 2] * (1 + step % 5))


def test_trace_has_the_steps_at_full_depth(tmp_path: Path) -> None:
    """It begins at its first step's time and reads back as a trace."""
    recorder = Recorder(tmp_path / "t.jsonl", algorithm="EAGLE3", depth=3, topk=1)
    now = [0.0]
    plan = Plan(None, "depth", (3,), "records")
    steered = Steering(plan, 3, recorder=recorder, clock=lambda: now[0])
    for now[0], correct in ((5.0, [1, 2]), (5.5, [3, 9]), (6.25, [0])):
        assert steered.choose(len(correct)) == 3
        steered.learn(correct)
    recorder.flush()
    trace = read_trace(tmp_path / "t.jsonl")
    assert (trace.algorithm, trace.depth, trace.topk) == ("EAGLE3", 3, 1)
    assert [step.time_s for step in trace.steps] == [0.0, 0.5, 1.25]
    # A count beyond the depth cannot be; it is cut rather than written into a file nobody can read.
    assert [step.correct for step in trace.steps] == [(1, 2), (3, 3), (0,)]


def test_trace_ends_at_its_size(tmp_path: Path) -> None:
    """Between two lines, and recording goes on costing nothing."""
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, algorithm="NGRAM", depth=7, topk=1, max_bytes=2000)
    for step in range(1000):
        recorder.add(float(step), [1, 2, 3])
    recorder.flush()
    assert recorder.full
    assert path.stat().st_size <= 2000
    assert len(read_trace(path).steps) == recorder.steps > 20


def test_trace_nobody_writes_is_bounded_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest steps go, and are counted."""
    monkeypatch.setattr("autospec.plugin.recorder.MAX_WAITING", 10)
    recorder = Recorder(tmp_path / "t.jsonl", algorithm="NGRAM", depth=7, topk=1)
    for step in range(25):
        recorder.add(float(step), [1])
    assert recorder.dropped == 15
    recorder.flush()
    assert recorder.steps == 10


class Clock:
    """Time that passes when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now_s


def timed(policy: Any, *, overlaps: bool = False) -> tuple[Steering, LiveCosts, Clock]:
    """A steering that times its steps."""
    live, clock = LiveCosts(COSTS), Clock()
    controller = Controller(Setting((0, 1, 3), live), policy, static_depth=3)
    plan = Plan(controller, "depth", (0, 1, 3), "steers", costs=live, live=live)
    return Steering(plan, 3, overlaps=overlaps, clock=clock), live, clock


def run(steered: Steering, clock: Clock, ms: float, batch: int = 1) -> int:
    """One step that takes so long."""
    depth = steered.choose(batch)
    clock.now_s += ms / 1000
    steered.learn([0] * batch)
    return depth


def test_steps_are_timed_at_their_own_depth() -> None:
    """From one launch to the next, whatever the next one's depth is."""
    steered, live, clock = timed(Told(*[0, 3] * 20))
    for _ in range(20):
        run(steered, clock, 20.0)
        run(steered, clock, 45.0)
    assert live.time_ms(0, 1) == pytest.approx(20.0)
    assert live.time_ms(3, 1) == pytest.approx(45.0)
    assert live.time_ms(1, 1) == COSTS.time_ms(1, 1)


def test_what_ran_across_a_prefill_or_a_change_of_batch_is_not_timed() -> None:
    """Neither tells how long a step of one size takes."""
    steered, live, clock = timed(Told(*[0] * 90))
    for _ in range(20):
        run(steered, clock, 500.0)
        steered.interrupted()
        run(steered, clock, 500.0, batch=2)
    assert live.time_ms(0, 1) == COSTS.time_ms(0, 1)
    for _ in range(20):
        run(steered, clock, 5.0)
        steered.restart_clock()
        clock.now_s += 0.020
    assert live.time_ms(0, 1) == pytest.approx(20.0)


def test_under_overlap_only_steps_of_settled_depths_are_timed() -> None:
    """The time between two launches is then that of the step before."""
    steered, live, clock = timed(Told(*[0, 3] * 20, *[3] * 20), overlaps=True)
    for _ in range(40):
        run(steered, clock, 99.0)
    assert live.version == 0
    for _ in range(20):
        run(steered, clock, 40.0)
    assert live.time_ms(3, 1) == pytest.approx(40.0)


def test_times_never_seen_are_looked_at() -> None:
    """A policy that never leaves one depth would rest on the other's time for ever."""
    steered, live, clock = timed(Told(*[3] * 2000))
    object.__setattr__(steered.plan, "kind", "throughput")
    depths = [run(steered, clock, 30.0 if steered.depth else 10.0) for _ in range(1500)]
    assert live.known(0, 1)
    assert depths.count(0) == steered.counters["probe_steps"] == ENOUGH
    steered, live, clock = timed(Told(*[3] * 2000))
    depths = [run(steered, clock, 30.0) for _ in range(1500)]
    assert set(depths) == {3}
