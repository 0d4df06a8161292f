"""Profiles: written and read back whole, refused where they do not belong."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from autospec import schema
from autospec.config import PLAIN, SpecConfig
from autospec.errors import MismatchError, SchemaError
from autospec.evidence import (
    Acceptance,
    Environment,
    Failure,
    Interval,
    Noise,
    NoiseAtLoad,
    Point,
    Provenance,
    StepTime,
    Target,
    WorkloadSummary,
)
from autospec.fidelity import Agreement, Lossless
from autospec.measurement import Percentiles
from autospec.profile import BINDING_FIELDS, Choice, Profile, Verdict, load_profile, save_profile

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8, options=(("ngram_max_bfs_breadth", 4),))
RATIO = Interval(1.4, 1.3, 1.5)


def make_profile(**changes: Any) -> Profile:
    """A profile in which n-gram drafting won."""
    arguments: dict[str, Any] = {"model_path": "models/m", "max_running_requests": 48}
    speculative: dict[str, Any] = {
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": 8,
    }
    plain = Point(PLAIN, "confirm", 1, Interval(10, 9, 11), 6, ttft_ms=Percentiles(20, 25, 30))
    profile = Profile(
        target=Target("models/m", "d1", "LlamaForCausalLM"),
        environment=Environment("cpu", "A CPU", 1, "0.5.23", "bfloat16", 1, 8, "autospec"),
        workload=WorkloadSummary("p.jsonl", "f1", {"tune": 4}, {"edit": 4}, (1,), 0.0),
        verdict=Verdict("faster", "it is", "confirm", NGRAM, RATIO),
        choice=Choice(NGRAM, {**arguments, **speculative}, {"page_size": 1, "dtype": None}),
        baseline=(plain,),
        points=(Point(NGRAM, "confirm", 1, Interval(14, 13, 15), 6, RATIO, 1.9),),
        schedule={1: 7},
        acceptance=(Acceptance(NGRAM, 1.9, (0.5, 0.4)),),
        failed=(Failure(SpecConfig("NGRAM", num_draft_tokens=4), "ran out of memory"),),
        provenance=Provenance("autospec tune", "2026-01-01T00:00:00+00:00", 0, "gp", 3, 9.5, "x"),
    )
    return dataclasses.replace(profile, **changes)


def test_profile_reads_back_as_written(tmp_path: Path) -> None:
    """YAML at rest loses nothing, leads with its schema and stays short."""
    path = tmp_path / "p.yaml"
    save_profile(path, make_profile())
    assert load_profile(path) == make_profile()
    assert path.read_text().startswith("schema: 1\n")
    assert len(path.read_text().splitlines()) < 300


def test_evidence_reads_back_as_written(tmp_path: Path) -> None:
    """Noise, answers, step times and warnings, each row on a line of its own."""
    same = Agreement(identical=12, near_ties=0, wide=0)
    profile = make_profile(
        noise=Noise(RATIO, 0.02, 3, (NoiseAtLoad(1, RATIO, 0.01),)),
        lossless=Lossless("differs", Agreement(3, 1, 8, (1, 2.5, 9), 4.0), same, 0.5),
        step_times=(StepTime(PLAIN, 4, 3.9, 25.0, 800, 1.5),),
        warnings=("PLAIN: passes got slower",),
    )
    save_profile(tmp_path / "p.yaml", profile)
    assert load_profile(tmp_path / "p.yaml") == profile
    assert "- {config: PLAIN, concurrency: 4, batch_size: 3.9" in (tmp_path / "p.yaml").read_text()


def test_server_args_and_flags_are_the_same_server() -> None:
    """Python and the shell start the same thing."""
    profile = make_profile()
    assert profile.server_args()["speculative_algorithm"] == "NGRAM"
    argv = profile.to_argv()
    assert argv[argv.index("--speculative-algorithm") + 1] == "NGRAM"


def test_server_args_cannot_change_the_profile() -> None:
    """A caller gets a copy."""
    profile = make_profile()
    profile.server_args()["model_path"] = "other"
    assert profile.server_args()["model_path"] == "models/m"


def test_model_may_lie_elsewhere() -> None:
    """A profile moves to a machine that keeps the same model in another folder."""
    moved = make_profile().with_model("elsewhere/m")
    assert moved.server_args()["model_path"] == moved.target.model == "elsewhere/m"


@pytest.mark.parametrize("name", BINDING_FIELDS)
def test_each_binding_field_is_checked_by_name(name: str) -> None:
    """Another machine or engine is refused with the field that differs."""
    profile = make_profile()
    old = getattr(profile.environment, name)
    change: dict[str, Any] = {name: old + 1 if isinstance(old, int) else old + "x"}
    changed = dataclasses.replace(profile.environment, **change)
    with pytest.raises(MismatchError, match=f"{name} {old!r}"):
        profile.require_match("d1", changed)


def test_other_model_is_refused_and_a_driver_update_is_not() -> None:
    """What cannot change the verdict does not bind."""
    profile = make_profile()
    with pytest.raises(MismatchError, match="model digest 'd1'"):
        profile.require_match("d2", profile.environment)
    updated = dataclasses.replace(profile.environment, driver="new", kernel="Linux 9", torch="9")
    profile.require_match("d1", updated)


def test_the_first_field_that_differs_is_named() -> None:
    """On another device everything differs; the device is what to say."""
    profile = make_profile()
    elsewhere = Environment("cuda", "A GPU", 2, "0.5.23", "bfloat16", 1)
    with pytest.raises(MismatchError, match="device 'cpu', here it is 'cuda'"):
        profile.require_match("d1", elsewhere)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["verdict", "decision"], "maybe", "verdict: decision: must be one of"),
        (["verdict", "decision"], "slower", "must be PLAIN"),
        (["choice", "config"], "PLAIN", "server_args say otherwise"),
        (["choice", "speed"], 1, "choice: unknown key 'speed'"),
        (["points", 0, "concurrency"], 0, "points[0]: concurrency is 0"),
        (["points", 0, "accept_length"], 0.5, "points[0]: accept_length is 0.5"),
        (["baseline", 0, "ttft_ms", "p90"], 5, "must not fall"),
        (["points", 0, "output_throughput", "low"], 99, "lies outside"),
        (["schedule"], {"1": -1}, "schedule is"),
        (["schedule"], {"one": 1}, "schedule: must be int"),
        (["baseline"], [], "baseline is empty"),
        (["schema"], 9, "schema 9 is newer"),
        (["environment", "tp_size"], "two", "environment: tp_size: must be int"),
    ],
)
def test_damaged_profiles_are_refused_by_field(
    tmp_path: Path, path: list[str | int], value: object, message: str
) -> None:
    """A hand-edited profile says what is wrong with it, and where."""
    document = yaml.safe_load(yaml.safe_dump(schema.dump(make_profile())))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    file = tmp_path / "p.yaml"
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(SchemaError) as caught:
        load_profile(file)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
