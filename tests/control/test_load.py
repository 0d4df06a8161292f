"""Policies by name, path or class; every shipped file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autospec import shipped
from autospec.control.load import KINDS, PolicyFile, load_policy, make_controller
from autospec.control.policy import Observation
from autospec.errors import ConfigError, InputError, SchemaError
from tests.control.contract import SETTING


@pytest.mark.parametrize("name", shipped.policy_names())
def test_every_shipped_policy_works_and_is_short(name: str) -> None:
    """Loaded as the command line loads it, below 40 lines, and it decides."""
    assert len(shipped.policy_path(name).read_text().splitlines()) < 40
    controller = make_controller(load_policy(name), SETTING)
    assert controller.decide(Observation(8)).depth in SETTING.depths
    assert controller.failed is None


def test_every_kind_is_shipped_under_its_name() -> None:
    """What a user may name without writing a file."""
    for kind in KINDS:
        assert load_policy(kind).kind == kind


def test_a_policy_by_path(tmp_path: Path) -> None:
    """Parameters and gates are read into what they belong to."""
    path = tmp_path / "mine.yaml"
    path.write_text("schema: 1\nkind: fixed\nparameters: {depth: 5}\ngates: {max_depth: 3}\n")
    policy = load_policy(path)
    assert policy.parameters == {"depth": 5}
    assert make_controller(policy, SETTING).decide(Observation(8)).depth == 3
    assert load_policy(str(path)) == policy


def test_a_class_of_the_users_own() -> None:
    """By name alone, or as the kind of a file with parameters."""
    name = "tests.control.test_kinds:Alternating"
    controller = make_controller(load_policy(name), SETTING)
    assert [controller.decide(Observation(size)).depth for size in (4, 5)] == [5, 0]
    controller = make_controller(PolicyFile(name, {"most": 1}), SETTING)
    assert controller.decide(Observation(4)).depth == 0


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("schema: 2\nkind: fixed\n", "schema 2 is newer"),
        ("schema: 1\nkind: fixed\nknobs: {}\n", "unknown key 'knobs'"),
        ("schema: 1\nkind: off\n", "kind: must be str, is bool False"),
        ("schema: 1\nkind: fixed\ngates: {dwell: 3}\n", "gates: unknown key 'dwell'"),
        ("schema: 1\nkind: fixed\ngates: {max_depth: -1}\n", "max_depth is -1"),
    ],
)
def test_policy_files_that_break_a_rule(tmp_path: Path, text: str, named: str) -> None:
    """File and field are named."""
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    with pytest.raises(SchemaError, match=named) as caught:
        load_policy(path)
    assert "broken.yaml" in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (PolicyFile("thoughput"), "kind 'thoughput' is none of off, fixed"),
        (PolicyFile("no.such.module:Kind"), "cannot be imported"),
        (PolicyFile("tests.control.contract:course"), "must be a class with a dataclass Param"),
        (PolicyFile("fixed", {"depht": 3}), "unknown key 'depht', known are depth"),
        (PolicyFile("fixed", {"depth": "3"}), "depth: must be int"),
        (PolicyFile("throughput", {"probe_share": 2.0}), "probe_share is 2.0"),
    ],
)
def test_kinds_and_parameters_that_do_not_fit(policy: PolicyFile, named: str) -> None:
    """What stood there and what belongs there."""
    with pytest.raises(InputError, match=named):
        make_controller(policy, SETTING)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    """Typing errors cost one look."""
    with pytest.raises(SchemaError, match=r"'throuput' is none of fixed, off, .*throughput"):
        load_policy("throuput")


def test_a_kind_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user's class that raises is named with what it raised."""
    (tmp_path / "own_policies.py").write_text(
        "from dataclasses import dataclass\n"
        "@dataclass\nclass Nothing: pass\n"
        "class Raises:\n"
        "    Parameters = Nothing\n"
        "    def __init__(self, setting, parameters): raise ZeroDivisionError('by hand')\n"
        "class Mute:\n"
        "    Parameters = Nothing\n"
        "    def __init__(self, setting, parameters): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="cannot be made: by hand"):
        make_controller(PolicyFile("own_policies:Raises"), SETTING)
    with pytest.raises(SchemaError, match="must have a method decide"):
        make_controller(PolicyFile("own_policies:Mute"), SETTING)
    sys.modules.pop("own_policies", None)


def test_policies_are_found_in_an_installed_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There they lie inside it; beside it only in a checkout."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "inside.yaml").write_text("schema: 1\nkind: fixed\n")
    monkeypatch.setattr(shipped, "_PLACES", (tmp_path, *shipped._PLACES))
    assert shipped.policy_names() == ("inside",)
    assert load_policy("inside").kind == "fixed"
