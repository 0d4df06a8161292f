"""``autospec replay policy``: figures from a trace, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autospec.cli import cli
from autospec.config import PLAIN, SpecConfig
from autospec.control.trace import write_trace
from autospec.control.worlds import TABLES, Model, make_world
from autospec.evidence import StepTime
from autospec.profile import Choice, Verdict, save_profile
from autospec.tuning.policy_file import save_policy
from tests.test_profile import make_profile

COSTS = {"step_time_ms": {"0": {"1": 10.0, "8": 12.0}, "5": {"1": 14.0, "8": 18.0}}}
FIGURES = {
    "throughput",
    "vs_plain",
    "vs_best_fixed",
    "best_fixed_depth",
    "vs_oracle",
    "switches",
    "probe_share",
    "fallbacks",
    "recoveries",
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A collapse and a recovery, in single requests."""
    path = tmp_path / "trace.jsonl"
    write_trace(path, make_world("collapse", 1, Model(TABLES["dear drafts"], 2)).trace)
    return path


@pytest.fixture
def costs(tmp_path: Path) -> Path:
    """Step times."""
    path = tmp_path / "costs.json"
    path.write_text(json.dumps(COSTS))
    return path


def run(*arguments: object) -> Result:
    """The command."""
    return CliRunner().invoke(cli, ["replay", "policy", *map(str, arguments)])


def test_json_has_every_figure_and_says_that_it_is_simulated(trace: Path, costs: Path) -> None:
    """Of the whole and of each phase; lists of steps are lists."""
    result = run(trace, "--costs", costs, "--policy", "throughput", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) >= FIGURES
    assert document["simulated"] is True
    assert document["policy"] == "throughput"
    assert document["failed"] is None
    assert [phase["phase"] for phase in document["phases"]] == [
        "high 1",
        "low 1",
        "high 2",
        "low 2",
    ]
    assert set(document["phases"][0]) >= FIGURES
    assert len(document["fallbacks"]) == 2
    assert document["vs_oracle"] > 0.95


@pytest.mark.parametrize("policy", ["off", "fixed", "threshold", "sglang-adaptive"])
def test_every_shipped_policy_can_be_replayed(trace: Path, costs: Path, policy: str) -> None:
    """By name; the table has no depth 1 or 3, which SGLang's candidates then do without."""
    result = run(trace, "--costs", costs, "--policy", policy, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    if policy == "off":
        assert document["vs_plain"] == pytest.approx(1)


def test_a_table_for_people(trace: Path, costs: Path) -> None:
    """Fits 80 columns; names phases, and the steps at which it fell back."""
    result = run(trace, "--costs", costs)
    assert result.exit_code == 0, result.output
    assert "simulated" in result.stdout
    assert "low 1" in result.stdout
    assert "fell back at steps" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_a_policy_that_fails_is_said_and_ends_with_1(
    trace: Path, costs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The figures are those of the static depth; the error goes to standard error."""
    (tmp_path / "failing_policy.py").write_text(
        "from dataclasses import dataclass\n"
        "class Fails:\n"
        "    @dataclass\n"
        "    class Parameters: pass\n"
        "    def __init__(self, setting, parameters): pass\n"
        "    def decide(self, observation): raise KeyError('gone')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    result = run(trace, "--costs", costs, "--policy", "failing_policy:Fails", "--json")
    assert result.exit_code == 1
    assert "KeyError" in json.loads(result.stdout)["failed"]
    assert "the policy failed" in result.stderr


def test_step_times_come_from_one_place(trace: Path, costs: Path, tmp_path: Path) -> None:
    """Neither or both is a usage error; a profile without step times says so."""
    assert run(trace).exit_code == 2
    profile = tmp_path / "profile.yaml"
    save_profile(profile, make_profile())
    assert run(trace, "--costs", costs, "--profile", profile).exit_code == 2
    result = run(trace, "--profile", profile)
    assert result.exit_code in {0, 2}
    if result.exit_code:
        assert "profile.yaml" in result.stderr


def test_the_profiles_own_policy_is_the_default(trace: Path, tmp_path: Path) -> None:
    """The one beside the profile, unless another is named; the shipped one where there is none."""
    best = SpecConfig("EAGLE3", num_steps=5, topk=1, num_draft_tokens=6)
    rows = tuple(StepTime(c, 1, 1.0, ms, 9) for c, ms in ((PLAIN, 10.0), (best, 14.0)))
    verdict = Verdict("slower", "it is", "tune", best)
    profile = make_profile(
        verdict=verdict, choice=Choice(PLAIN, {"model_path": "m"}, {}), step_times=rows
    )
    save_profile(tmp_path / "p.yaml", profile)
    arguments = (trace, "--profile", tmp_path / "p.yaml", "--json")
    assert json.loads(run(*arguments).stdout)["policy"] == "throughput"
    beside = save_policy(profile, tmp_path / "p.yaml")
    document = json.loads(run(*arguments).stdout)
    assert document["policy"] == str(beside)
    assert document["vs_plain"] == pytest.approx(1)
    assert json.loads(run(*arguments, "--policy", "fixed").stdout)["policy"] == "fixed"


@pytest.mark.parametrize("name", ["missing.jsonl", "costs.json"])
def test_bad_files_are_one_line(costs: Path, name: str) -> None:
    """File and line are named, the exit code is 2."""
    result = run(costs.with_name(name), "--costs", costs)
    assert result.exit_code == 2
    assert name in result.stderr
    assert result.stderr.startswith("Error: ")
