"""What every kind of policy promises. A kind's tests subclass this with one fixture."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from autospec.control.controller import LOG_LENGTH, Controller
from autospec.control.costs import Costs
from autospec.control.policy import Decision, Observation, Policy, Setting

Make = Callable[[Setting], Policy]

COSTS = Costs(
    {
        0: {1: 10.0, 8: 10.4, 64: 13.2},
        1: {1: 11.5, 8: 12.5, 64: 26.0},
        3: {1: 12.3, 8: 14.0, 64: 45.0},
        5: {1: 13.0, 8: 15.5, 64: 60.0},
    }
)
SETTING = Setting((0, 1, 3, 5), COSTS)
BATCH_SIZES = (1, 8, 8, 8, 8, 2, 64, 8)


def course(policy: Policy, rates: Sequence[float], seed: int) -> Iterator[tuple[int, Decision]]:
    """Batch sizes and decisions, a pair a step, of a server with these rates of right drafts."""
    chance = random.Random(seed)  # noqa: S311  # a seeded load, no secret
    depth = 0
    correct: tuple[int, ...] = ()
    for step, rate in enumerate(rates):
        batch = BATCH_SIZES[step // 50 % len(BATCH_SIZES)]
        decision = policy.decide(Observation(batch, depth, correct, time_s=0.01 * step))
        yield batch, decision
        depth = decision.depth
        correct = tuple(_draw(chance, rate, depth) for _ in range(batch)) if depth else ()


def _draw(chance: random.Random, rate: float, depth: int) -> int:
    for right in range(depth):
        if chance.random() >= rate:
            return right
    return depth


RATES = [0.8] * 400 + [0.05] * 400 + [0.8] * 400


class PolicyContract:
    """Subclass with a fixture ``make`` that gives a setting's policy."""

    @pytest.fixture
    def make(self) -> Make:
        """The kind under test."""
        raise NotImplementedError

    def test_every_decision_can_be_run_and_has_a_reason(self, make: Make) -> None:
        """Depths are the setting's, reasons are one line."""
        for _, decision in course(make(SETTING), RATES, 0):
            assert decision.depth in SETTING.depths
            assert decision.want in {"settle", "probe"}
            assert decision.reason
            assert "\n" not in decision.reason

    def test_the_same_observations_give_the_same_decisions(self, make: Make) -> None:
        """Every rank of a server decides alike: there is no clock and no chance in it."""
        one, other = make(SETTING), make(SETTING)
        for (_, decision), (_, again) in zip(
            course(one, RATES, 1), course(other, RATES, 1), strict=True
        ):
            assert decision == again

    def test_the_callers_clock_and_queue_change_nothing(self, make: Make) -> None:
        """They differ between ranks."""
        one, other = make(SETTING), make(SETTING)
        depth = 0
        correct: tuple[int, ...] = ()
        for step in range(300):
            decision = one.decide(Observation(8, depth, correct, queue=None, time_s=None))
            again = other.decide(Observation(8, depth, correct, queue=step, time_s=float(step**2)))
            assert decision == again
            depth = decision.depth
            correct = (step % 2,) * 8 if depth else ()

    def test_two_servers_do_not_share_a_state(self, make: Make) -> None:
        """What one server shows another's policy does not know."""
        alone = [decision for _, decision in course(make(SETTING), RATES[:600], 2)]
        beside, other = make(SETTING), make(SETTING)
        mixed = []
        pairs = zip(course(beside, RATES[:600], 2), course(other, RATES[300:900], 3), strict=True)
        for (_, decision), _ in pairs:
            mixed.append(decision)
        assert mixed == alone

    def test_observations_are_left_as_they_are(self, make: Make) -> None:
        """A policy keeps its hands off what it is shown."""
        policy = make(SETTING)
        correct = [0, 3, 1, 5]
        kept = copy.copy(correct)
        for _ in range(50):
            policy.decide(Observation(4, 5, correct))
        assert correct == kept

    @pytest.mark.parametrize("batch", [1, 7, 64, 500])
    def test_extremes_are_survived(self, make: Make, batch: int) -> None:
        """All drafts right, all wrong, batches unseen, depths not asked for: always an answer."""
        policy = make(SETTING)
        for step in range(400):
            depth = SETTING.depths[step // 7 % 4]
            correct = (depth if step // 100 % 2 else 0,) * batch if depth else ()
            decision = policy.decide(Observation(batch, depth, correct))
            assert decision.depth in SETTING.depths

    def test_nothing_learned_is_no_reason_to_change_for_ever(self, make: Make) -> None:
        """A server that shows nothing gets few changes of mind."""
        controller = Controller(SETTING, make(SETTING))
        for _ in range(1000):
            controller.decide(Observation(8))
        assert controller.failed is None
        assert controller.switches <= 400

    def test_the_smallest_setting_is_enough(self, make: Make) -> None:
        """One depth beside plain decoding is a choice."""
        setting = Setting((0, 1), COSTS)
        for _, decision in course(make(setting), RATES, 4):
            assert decision.depth in setting.depths

    def test_a_controller_carries_it_without_a_failure(self, make: Make) -> None:
        """The log stays bounded and counts agree with the decisions."""
        controller = Controller(SETTING, make(SETTING))
        probes = sum(decision.want == "probe" for _, decision in course(controller, RATES * 2, 5))
        assert controller.failed is None
        assert controller.steps == 2 * len(RATES)
        assert controller.probe_steps == probes
        assert len(controller.log) <= LOG_LENGTH
