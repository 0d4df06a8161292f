"""Which policy is at work for what the user gives."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from autospec.client.setup import PolicyLike, make_steering
from autospec.config import PLAIN
from autospec.control.load import PolicyFile
from autospec.control.policy import Decision, Observation
from autospec.errors import InputError, SchemaError
from autospec.evidence import StepTime
from autospec.profile import Choice, Verdict, save_profile
from tests.client.helpers import DEPTH, EAGLE, Told, measured_profile


def kind_of(policy: PolicyLike | None = None, profile: Any = None, depth: int | None = None) -> str:
    """The class of the policy at work."""
    steering = make_steering(profile, policy, depth, routes=True)
    return type(steering._controller._policy).__name__


def test_no_profile_and_no_policy_is_speculation_always() -> None:
    """There is nothing to weigh with."""
    assert kind_of() == "Fixed"


def test_profile_alone_is_weighed_by_the_shipped_policy(tmp_path: Path) -> None:
    """Given as an object or by its path."""
    save_profile(tmp_path / "p.yaml", measured_profile())
    assert kind_of(profile=measured_profile()) == "Throughput"
    assert kind_of(profile=str(tmp_path / "p.yaml")) == "Throughput"
    assert kind_of(profile=tmp_path / "p.yaml", policy="off") == "Off"


def test_policy_beside_the_profile_is_its_default(tmp_path: Path) -> None:
    """It may name depths that this server does not have; they are left out."""
    save_profile(tmp_path / "p.yaml", measured_profile())
    beside = tmp_path / "p.policy.yaml"
    beside.write_text("schema: 1\nkind: threshold\n")
    assert kind_of(profile=tmp_path / "p.yaml") == "Threshold"
    beside.write_text("schema: 1\nkind: throughput\nparameters: {depths: [0, 1, 2, 3]}\n")
    steering = make_steering(tmp_path / "p.yaml", None, None, routes=True)
    assert (steering.depth, steering.said.depth) == (DEPTH, DEPTH)


def test_profile_that_found_plain_better_is_obeyed() -> None:
    """Until the user names a policy."""
    base = measured_profile()
    profile = replace(
        base,
        verdict=Verdict("slower", "it is", "confirm", EAGLE),
        choice=Choice(PLAIN, {"model_path": "m"}, {}),
    )
    assert kind_of(profile=profile) == "Off"
    assert make_steering(profile, "throughput", None, routes=True).depth == DEPTH


def test_profile_without_step_times_cannot_weigh(caplog: pytest.LogCaptureFixture) -> None:
    """By default it speculates and says so; a policy that needs them is refused."""
    profile = replace(measured_profile(), step_times=(StepTime(PLAIN, 1, 1.0, 9.0, 5),))
    with caplog.at_level(logging.WARNING):
        assert kind_of(profile=profile) == "Fixed"
    assert "no step times" in caplog.text
    with pytest.raises(InputError, match="needs step times"):
        kind_of(profile=profile, policy="throughput")


@pytest.mark.parametrize("policy", ["threshold", "throughput", Told()])
def test_policy_that_looks_at_drafts_needs_a_depth(policy: PolicyLike) -> None:
    """It is the profile's, or is given."""
    with pytest.raises(InputError, match="depth"):
        kind_of(policy)


def test_policy_may_be_an_object_a_file_or_a_class(tmp_path: Path) -> None:
    """Whatever ``autospec.control`` knows."""
    assert kind_of(Told(), depth=2) == "Told"
    assert kind_of(PolicyFile("threshold"), depth=2) == "Threshold"
    (tmp_path / "own.yaml").write_text("schema: 1\nkind: threshold\n")
    assert kind_of(tmp_path / "own.yaml", depth=2) == "Threshold"
    assert kind_of(f"{__name__}:Own", depth=2) == "Own"


class Own:
    """A user's kind."""

    @dataclass(frozen=True)
    class Parameters:
        """None."""

    def __init__(self, setting: object, parameters: object) -> None:
        pass

    def decide(self, observation: Observation) -> Decision:
        """Plain decoding."""
        return Decision(0, "always")


def test_nonsense_is_refused() -> None:
    """In one line that says what would be right."""
    with pytest.raises(InputError, match="depth is 0"):
        kind_of(Told(), depth=0)
    with pytest.raises(InputError, match="method decide"):
        kind_of(3, depth=1)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(SchemaError, match="none of"):
        kind_of("nothing")
