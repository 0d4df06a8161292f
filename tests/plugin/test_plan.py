"""What the plugin decides to do, from what it was asked and how the server speculates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import AutospecError, ConfigError, SchemaError
from autospec.evidence import StepTime
from autospec.plugin.asked import Asked, asked_for
from autospec.plugin.plan import EngineFacts, make_plan
from autospec.profile import Choice, Profile, Verdict, save_profile
from tests.test_profile import RATIO, make_profile

NGRAM = EngineFacts("NGRAM", 7)
CHAIN = EngineFacts("EAGLE3", 5)


def chain(steps: int) -> SpecConfig:
    """An EAGLE3 chain."""
    return SpecConfig("EAGLE3", steps, 1, steps + 1, "/draft")


def times(config: SpecConfig, ms: float) -> StepTime:
    """One measured row."""
    return StepTime(config, 1, 1.0, ms, 100)


def eagle_profile(**changes: Any) -> Profile:
    """A profile that deploys an EAGLE3 chain of depth 5, with depths 1, 3 and 5 measured."""
    best = chain(5)
    arguments = {"model_path": "m", "speculative_algorithm": "EAGLE3"}
    rows = {PLAIN: 10.0, chain(1): 12.0, chain(3): 14.0, chain(5): 17.0}
    return make_profile(
        verdict=Verdict("faster", "it is", "confirm", best, RATIO),
        choice=Choice(best, {**arguments}, {}),
        schedule={1: 5, 8: 3},
        step_times=tuple(times(config, ms) for config, ms in rows.items()),
        **changes,
    )


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """The profile's file."""
    path = tmp_path / "p.yaml"
    save_profile(path, eagle_profile())
    return path


def test_nothing_is_asked_for_without_the_variables() -> None:
    """Empty ones count as none, so that they can be taken back."""
    assert asked_for({}) is None
    assert asked_for({"AUTOSPEC_PROFILE": "", "AUTOSPEC_POLICY": ""}) is None
    assert asked_for({"AUTOSPEC_POLICY": "off"}) == Asked(policy="off")
    assert asked_for({"AUTOSPEC_TRACE": "t"}) == Asked(trace=Path("t"))


def test_profile_brings_step_times_and_the_default_policy(profile: Path) -> None:
    """Without graphs every measured depth up to the one at start can be had for nothing."""
    plan = make_plan(Asked(profile), CHAIN)
    assert plan.controller is not None
    assert (plan.switching, plan.depths, plan.policy) == ("depth", (0, 1, 3, 5), "throughput")
    assert plan.costs is not None
    assert plan.costs.time_ms(3, 1) == 14.0


def test_graph_memory_is_spent_on_the_schedule_alone(profile: Path) -> None:
    """Depth 1 was measured but is best nowhere."""
    plan = make_plan(Asked(profile), EngineFacts("EAGLE3", 5, captures_graphs=True))
    assert plan.depths == (0, 3, 5)


def test_policy_beside_the_profile_comes_first(profile: Path) -> None:
    """And a named one before that."""
    sibling = profile.with_name("p.policy.yaml")
    sibling.write_text("schema: 1\nkind: 'off'\n")
    assert make_plan(Asked(profile), CHAIN).kind == "off"
    assert make_plan(Asked(profile, "fixed"), CHAIN).kind == "fixed"


def test_ngram_is_switched_on_and_off() -> None:
    """There is no depth between."""
    plan = make_plan(Asked(policy="fixed"), NGRAM)
    assert (plan.switching, plan.depths) == ("on-off", (0, 7))


def test_depths_that_a_policy_names_are_made_ready() -> None:
    """As far as the server can go."""
    plan = make_plan(Asked(policy="sglang-adaptive"), EngineFacts("EAGLE", 4))
    assert plan.depths == (0, 1, 3, 4)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (EngineFacts("EAGLE3", 3, topk=4), "EAGLE3 trees"),
        (EngineFacts("DFLASH", 7), "DFLASH"),
        (EngineFacts("EAGLE", 3, obstacle="it cannot switch a server with LoRA"), "LoRA"),
    ],
)
def test_what_cannot_be_switched_is_observed(engine: EngineFacts, says: str) -> None:
    """And said, in one sentence."""
    plan = make_plan(Asked(policy="off"), engine)
    assert plan.controller is None
    assert plan.switching == "nothing"
    assert plan.reason.startswith("can only observe")
    assert says in plan.reason


def test_a_trace_is_recorded_at_full_depth(profile: Path, tmp_path: Path) -> None:
    """A policy would cut off what the trace is to show."""
    plan = make_plan(Asked(profile, trace=tmp_path / "t"), CHAIN)
    assert plan.controller is None
    assert plan.depths == (5,)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (EngineFacts("EAGLE", 5), "deploys EAGLE3"),
        (EngineFacts("EAGLE3", 4), "step times are known for"),
    ],
)
def test_profile_of_another_server_is_refused(
    profile: Path, engine: EngineFacts, says: str
) -> None:
    """Its step times would be wrong ones."""
    with pytest.raises(ConfigError, match=says):
        make_plan(Asked(profile), engine)


@pytest.mark.parametrize("asked", [Asked(Path("/no/p.yaml")), Asked(policy="no-such-policy")])
def test_what_cannot_be_read_is_an_error_of_autospecs(asked: Asked) -> None:
    """The server's side turns it into a reason for not being active."""
    with pytest.raises(AutospecError):
        make_plan(asked, CHAIN)


def test_throughput_without_step_times_is_refused() -> None:
    """There would be no break-even."""
    with pytest.raises(ConfigError, match="step times"):
        make_plan(Asked(policy="throughput"), CHAIN)


def test_profile_without_step_times_is_refused(tmp_path: Path) -> None:
    """As those of the first version are."""
    save_profile(tmp_path / "old.yaml", make_profile())
    with pytest.raises(SchemaError, match="step_times"):
        make_plan(Asked(tmp_path / "old.yaml"), NGRAM)
