"""Every shipped kind, and a user's own: the contract, and what each is for."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autospec.control.controller import Controller
from autospec.control.costs import Costs
from autospec.control.kinds.fixed import Fixed
from autospec.control.kinds.off import Off
from autospec.control.kinds.sglang_adaptive import SglangAdaptive, Slot
from autospec.control.kinds.threshold import Threshold
from autospec.control.kinds.throughput import Throughput
from autospec.control.load import PolicyFile, make_controller
from autospec.control.policy import Decision, Observation, Policy, Setting
from autospec.control.replay import Ground, Result, replay
from autospec.control.worlds import TABLES, Model, make_world
from autospec.errors import ConfigError, SchemaError
from tests.control.contract import COSTS, SETTING, Make, PolicyContract


class Alternating:
    """A user's own kind: deep for small batches, plain for large ones."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """What its policy file may give."""

        most: int = 4

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        self._deepest = setting.deepest
        self._most = parameters.most

    def decide(self, observation: Observation) -> Decision:
        """By batch size alone."""
        small = observation.batch_size <= self._most
        return Decision(self._deepest if small else 0, f"at most {self._most} requests")


class TestOff(PolicyContract):
    """``off``."""

    @pytest.fixture
    def make(self) -> Make:
        """Plain decoding."""
        return lambda setting: Off(setting, Off.Parameters())


class TestFixed(PolicyContract):
    """``fixed``."""

    @pytest.fixture
    def make(self) -> Make:
        """The deepest."""
        return lambda setting: Fixed(setting, Fixed.Parameters())


class TestThreshold(PolicyContract):
    """``threshold``."""

    @pytest.fixture
    def make(self) -> Make:
        """Its defaults."""
        return lambda setting: Threshold(setting, Threshold.Parameters())


class TestSglangAdaptive(PolicyContract):
    """``sglang-adaptive``."""

    @pytest.fixture
    def make(self) -> Make:
        """SGLang's values."""
        return lambda setting: SglangAdaptive(setting, SglangAdaptive.Parameters())


class TestThroughput(PolicyContract):
    """``throughput``."""

    @pytest.fixture
    def make(self) -> Make:
        """Its defaults."""
        return lambda setting: Throughput(setting, Throughput.Parameters())


class TestUsersOwn(PolicyContract):
    """A class of the user's."""

    @pytest.fixture
    def make(self) -> Make:
        """Four lines are enough to test it."""
        return lambda setting: Alternating(setting, Alternating.Parameters())


def show(policy: Policy, depth: int, correct: tuple[int, ...], steps: int) -> Decision:
    """Show the same step again and again; the last answer."""
    answer = policy.decide(Observation(len(correct)))
    for _ in range(steps):
        answer = policy.decide(Observation(len(correct), depth, correct))
    return answer


def test_off_is_plain() -> None:
    """Whatever is shown."""
    assert show(Off(SETTING, Off.Parameters()), 5, (5,) * 8, 20).depth == 0


def test_fixed_takes_its_depth_or_says_what_the_server_can_run() -> None:
    """A depth without an engine state behind it is refused, with the ones that have."""
    assert show(Fixed(SETTING, Fixed.Parameters(3)), 3, (0,) * 8, 20).depth == 3
    with pytest.raises(ConfigError, match="depth is 2, the server can run 0, 1, 3, 5"):
        Fixed(SETTING, Fixed.Parameters(2))
    with pytest.raises(SchemaError, match="depth is -1"):
        Fixed.Parameters(-1)


def test_threshold_stops_below_its_rate_and_tries_again() -> None:
    """A full window below the rate, then plain steps, then speculation."""
    parameters = Threshold.Parameters(min_accept_rate=0.5, window_steps=10, retry_steps=20)
    policy = Threshold(SETTING, parameters)
    assert show(policy, 5, (2, 2), 9).depth == 5
    assert policy.decide(Observation(2, 5, (2, 2))).depth == 0
    depths = [policy.decide(Observation(2)).depth for _ in range(25)]
    assert depths[:19] == [0] * 19
    assert depths[20:] == [5] * 5


def test_threshold_without_retry_is_off_for_good() -> None:
    """As in engines that switch off permanently."""
    policy = Threshold(SETTING, Threshold.Parameters(window_steps=5, retry_steps=0))
    show(policy, 5, (0,), 10)
    assert all(policy.decide(Observation(1)).depth == 0 for _ in range(2000))


def test_sglang_adaptive_climbs_while_drafts_are_right_and_falls_while_they_are_not() -> None:
    """Up past the depth less half a draft, down at half a draft below the candidate before."""
    policy = SglangAdaptive(SETTING, SglangAdaptive.Parameters())
    assert policy.decide(Observation(1)).depth == 3
    assert show(policy, 3, (3,), 12).depth == 5
    assert show(policy, 5, (0,), 40).depth == 1


def test_sglang_adaptive_tries_again_from_plain_at_every_turn() -> None:
    """Its cost where speculation never pays: one turn in two is spent speculating."""
    policy = SglangAdaptive(SETTING, SglangAdaptive.Parameters())
    depth, depths = 0, []
    for _ in range(200):
        depth = policy.decide(Observation(8, depth, (0,) * 8 if depth else ())).depth
        depths.append(depth)
    settled = depths[100:]
    assert settled.count(1) == settled.count(0) == 50


def test_sglang_adaptive_has_a_slot_for_each_range_of_batch_sizes() -> None:
    """Batches of 64 never speculate; a single request always does."""
    policy = SglangAdaptive(SETTING, SglangAdaptive.Parameters())
    assert show(policy, 5, (5,) * 64, 50).depth == 0
    assert show(policy, 5, (0,), 100).depth == 1


def test_sglang_adaptive_refuses_slots_that_cannot_be_run() -> None:
    """Naming the candidates and what there is."""
    parameters = SglangAdaptive.Parameters(slots={1: Slot((2, 4))})
    with pytest.raises(ConfigError, match=r"candidate_steps are \[2, 4\], the server can run"):
        SglangAdaptive(SETTING, parameters)
    with pytest.raises(SchemaError, match="candidate_steps"):
        Slot((3, 1))


def run(world: str, table: str, seed: int = 1000, **parameters: float) -> Result:
    """``throughput`` in a world, at batch size 8."""
    made = make_world(world, seed, Model(TABLES[table], 8))
    ground = Ground(made.trace, made.model.costs)
    return replay(ground, make_controller(PolicyFile("throughput", parameters), ground.setting))


@pytest.mark.parametrize("table", ["cheap drafts", "dear drafts", "n-grams", "long blocks"])
def test_throughput_follows_a_collapse_and_a_recovery(table: str) -> None:
    """Plain within 50 steps, back within 200, near the oracle, two switches a phase at most."""
    result = run("collapse", table)
    assert result.whole.vs_oracle > 0.97
    for part in result.phases[1:]:
        lag = (part.fallbacks or part.recoveries)[0] - part.first_step
        assert lag <= (50 if part.phase and part.phase.startswith("low") else 200)
        assert part.switches <= 2


def test_throughput_leaves_a_depth_that_is_right_often_and_does_not_pay() -> None:
    """89 % of the drafts are right and speculation makes 0.63x: acceptance alone never sees it."""
    costs = Costs({0: {8: 10.0}, 1: {8: 30.0}})
    controller = make_controller(PolicyFile("throughput"), Setting((0, 1), costs))
    depth, plain = 0, 0
    for step in range(2000):
        correct = tuple(int((step + i) % 9 > 0) for i in range(8)) if depth else ()
        depth = controller.decide(Observation(8, depth, correct)).depth
        plain += depth == 0
    assert plain > 1950


def test_throughput_pays_no_more_than_its_share_for_probing() -> None:
    """On a load where speculation never pays."""
    for table in ("dear drafts", "long blocks"):
        result = run("stationary low", table)
        assert 0 < result.whole.probe_share < 0.01
        assert result.whole.vs_plain > 0.985
        assert len(result.whole.fallbacks) <= 2


def test_throughput_does_not_fall_back_at_a_tenth_above_break_even() -> None:
    """Ten thousand steps without a false alarm that matters."""
    assert len(run("stationary marginal", "dear drafts").whole.fallbacks) <= 1


def test_throughput_does_not_oscillate_at_break_even() -> None:
    """Where nothing is at stake nothing changes."""
    result = run("break-even", "cheap drafts")
    assert all(part.switches <= 2 for part in result.phases)
    assert result.whole.vs_plain > 0.98


def test_throughput_takes_other_depths_for_other_batch_sizes_at_once() -> None:
    """Acceptance belongs to the requests, break-even to the batch: no re-learning is needed."""
    controller = Controller(SETTING, Throughput(SETTING, Throughput.Parameters()))
    depth = 0
    for step in range(900):
        batch = 8 if step // 300 != 1 else 64
        correct = tuple((i + step) % 4 for i in range(batch)) if depth else ()
        correct = tuple(min(value, depth) for value in correct)
        decision = controller.decide(Observation(batch, depth, correct))
        depth = decision.depth
        if step in {299, 899}:
            assert depth == 3
        if 320 <= step < 600 and decision.want == "settle":
            assert depth == 0


def test_throughput_looks_deeper_when_depth_may_pay() -> None:
    """It began deep, was driven to depth 1, and finds depth 5 again though 1 never shows it."""
    controller = Controller(SETTING, Throughput(SETTING, Throughput.Parameters()))
    depth = 0
    for step in range(3000):
        good = step > 500
        correct = ((depth if good else min(depth, step % 2)),) * 8 if depth else ()
        depth = controller.decide(Observation(8, depth, correct)).depth
    assert depth == 5


def shown(policy: Policy, depth: int, shadows: list[tuple[int, ...]]) -> list[Decision]:
    """What it says in a batch of 4 whose drafts at a depth are all wrong, beside these shadows."""
    said: list[Decision] = []
    for shadow in shadows:
        drafted = said[-1].depth if said else 0
        correct = (0,) * 4 if drafted == depth else ()
        said.append(policy.decide(Observation(4, drafted, correct, shadow)))
    return said


def test_throughput_is_told_by_shadows_what_trials_would_cost() -> None:
    """It returns at once when they come true, and tries nothing before; without them it tries."""
    setting = Setting((0, 7), Costs({0: {1.0: 10.0}, 7: {1.0: 25.0}}))
    policy = Throughput(setting, Throughput.Parameters())
    said = shown(policy, 7, [()] * 60 + [(0,) * 4] * 600)
    assert said[-600].depth == 0
    assert {(word.depth, word.want) for word in said[-600:]} == {(0, "settle")}
    said = shown(policy, 7, [(7,), (), (), (7, 7), (), (7,), (), ()] * 4)
    assert (7, "settle") in {(word.depth, word.want) for word in said}
    other = Throughput(setting, Throughput.Parameters())
    shown(other, 7, [()] * 60 + [(0,) * 4] * 300)
    assert "probe" in {word.want for word in shown(other, 7, [()] * 300)}


def test_throughput_names_figures_in_its_reasons() -> None:
    """A person can check the decision: batch size, depth, accept length, break-even."""
    controller = Controller(SETTING, Throughput(SETTING, Throughput.Parameters()))
    depth = 0
    for _ in range(200):
        depth = controller.decide(Observation(8, depth, (0,) * 8 if depth else ())).depth
    reasons = [event.decision.reason for event in controller.log if event.decision.depth == 0]
    assert "at batch size 8 depth" in reasons[0]
    assert "break-even is" in reasons[0]


def test_throughput_needs_step_times_and_something_to_choose() -> None:
    """Refused with what is missing."""
    with pytest.raises(ConfigError, match="needs step times"):
        Throughput(Setting((0, 1)), Throughput.Parameters())
    with pytest.raises(ConfigError, match=r"depths are \[0, 2\]"):
        Throughput(SETTING, Throughput.Parameters(depths=(2,)))
    with pytest.raises(SchemaError, match="probe_share is 1"):
        Throughput.Parameters(probe_share=1.0)


def test_throughput_keeps_to_the_depths_it_is_given() -> None:
    """Candidates from a policy file bound the search."""
    policy = Throughput(Setting((0, 1, 3, 5), COSTS), Throughput.Parameters(depths=(0, 3)))
    seen = {policy.decide(Observation(8, 3, (3,) * 8)).depth for _ in range(300)}
    assert seen == {3}
