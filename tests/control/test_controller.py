"""The controller and its gates: what passes, what is held back, what is contained."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from autospec.control.controller import LOG_LENGTH, Controller
from autospec.control.gates import Gates
from autospec.control.policy import Decision, Observation, Setting
from autospec.errors import ConfigError, SchemaError
from tests.control.contract import COSTS, SETTING


class Script:
    """Says what it was told to say, and then raises."""

    def __init__(self, answers: Iterable[object]) -> None:
        self._answers = iter(answers)

    def decide(self, observation: Observation) -> Decision:
        """The next line."""
        del observation
        answer = next(self._answers, None)
        if answer is None:
            raise LookupError("out of lines")
        return answer  # type: ignore[return-value]  # some lines are nonsense on purpose


def settle(*depths: int) -> list[Decision]:
    """Decisions to stay with these depths."""
    return [Decision(depth, "said so") for depth in depths]


def depths(controller: Controller, steps: int, batch: int = 8) -> list[int]:
    """What a controller decides."""
    return [controller.decide(Observation(batch)).depth for _ in range(steps)]


def test_a_policy_that_raises_is_contained() -> None:
    """The server goes on at its static depth, and each later reason says why."""
    controller = Controller(SETTING, Script(settle(5, 5)), static_depth=3)
    assert depths(controller, 4) == [5, 5, 3, 3]
    assert controller.failed == "LookupError: out of lines"
    assert "the policy failed, depth 3 from here on" in controller.log[-1].decision.reason
    assert len(controller.log) == 2


@pytest.mark.parametrize("answer", [5, "plain", Decision("5", "text"), Decision(True, "bool")])  # type: ignore[arg-type]  # nonsense on purpose
def test_an_answer_that_is_no_decision_is_contained(answer: object) -> None:
    """Plain decoding by default, with what was answered."""
    controller = Controller(SETTING, Script([answer]))
    assert depths(controller, 2) == [0, 0]
    assert "it answered" in (controller.failed or "")


def test_a_depth_the_server_cannot_run_becomes_the_next_below() -> None:
    """Never deeper than decided."""
    assert depths(Controller(SETTING, Script(settle(4, 9, 2, -3))), 4) == [3, 5, 1, 0]


def test_the_log_holds_changes_and_is_bounded() -> None:
    """Its step, batch size and decision, the oldest dropped first."""
    controller = Controller(SETTING, Script(settle(*[0, 0, 5, 5] * 300)))
    depths(controller, 1200)
    assert len(controller.log) == LOG_LENGTH
    assert controller.log[-1].step == 1198
    assert controller.log[-1].batch_size == 8
    assert controller.switches == 599


def test_probes_are_counted_and_no_switches() -> None:
    """A step run to learn from is no change of mind."""
    lines = [*settle(0), Decision(5, "looks", "probe"), *settle(0)]
    controller = Controller(SETTING, Script(lines))
    assert depths(controller, 3) == [0, 5, 0]
    assert controller.switches == 0
    assert controller.probe_steps == 1


def test_gates_bound_depth_and_batch_size() -> None:
    """Whatever the policy says."""
    gates = Gates(max_depth=3, max_batch_size=16)
    controller = Controller(SETTING, Script(settle(5, 5, 1)), gates)
    assert depths(controller, 1, batch=16) == [3]
    assert depths(controller, 1, batch=17) == [0]
    assert depths(controller, 1) == [1]
    assert "gate: depth 3" in controller.log[0].decision.reason


def test_warm_up_holds_the_first_decision() -> None:
    """Probes included."""
    lines = [*settle(3), Decision(5, "looks", "probe"), *settle(0, 0, 0)]
    assert depths(Controller(SETTING, Script(lines), Gates(warmup_steps=3)), 5) == [3, 3, 3, 0, 0]


def test_dwell_holds_a_depth_and_lets_probes_pass() -> None:
    """At least so many steps between two changes, the first of them counted from the start."""
    lines = [*settle(0, 5, 0, 0), Decision(3, "looks", "probe"), *settle(0, 0, 0)]
    controller = Controller(SETTING, Script(lines), Gates(dwell_steps=3))
    assert depths(controller, 8) == [0, 0, 0, 0, 3, 0, 0, 0]
    lines = settle(0, 0, 0, 5, 0, 0, 0, 0)
    controller = Controller(SETTING, Script(lines), Gates(dwell_steps=3))
    assert depths(controller, 8) == [0, 0, 0, 5, 5, 5, 5, 0]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"max_depth": -1}, "max_depth is -1"),
        ({"max_batch_size": 0}, "max_batch_size is 0"),
        ({"dwell_steps": -2}, "dwell_steps is -2"),
    ],
)
def test_gates_out_of_range_are_refused(values: dict[str, int], named: str) -> None:
    """Naming the value."""
    with pytest.raises(SchemaError, match=named):
        Gates(**values)


def test_settings_that_cannot_be_are_refused() -> None:
    """Depths rise from 0, and have step times where there are any."""
    with pytest.raises(ConfigError, match="must rise from 0"):
        Setting((1, 3))
    with pytest.raises(ConfigError, match="step times are known for"):
        Setting((0, 2), COSTS)
