"""Exports: what other programs read must be what they accept, and what is lost must be said."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from autospec.cli import cli
from autospec.cli.export import FORM_NAMES
from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import Deployment, server_args
from autospec.errors import ConfigError
from autospec.evidence import Decision
from autospec.exports.forms import FORMS
from autospec.exports.plan import Slot, slots
from autospec.profile import Choice, Profile, Verdict, save_profile
from tests.test_profile import RATIO, make_profile

EAGLE3 = SpecConfig("EAGLE3", 5, 1, 6, draft_model="/models/head")
TREE = SpecConfig("EAGLE3", 4, 4, 16, draft_model="/models/head")
SMALL = SpecConfig("STANDALONE", 3, 1, 4, draft_model="small")
LOADS = {1: 5, 8: 5, 32: 0}


def profile_of(config: SpecConfig, schedule: dict[int, int] | None = None) -> Profile:
    """A profile that deploys a configuration on a GPU with a limit of 64 requests."""
    deployment = Deployment(
        model="/models/m", device="cuda", max_running_requests=64, mem_fraction_static=0.8
    )
    decision: Decision = "slower" if config.is_plain else "faster"
    base = make_profile()
    return make_profile(
        environment=replace(base.environment, device="cuda", accelerator="H100", tp_size=2),
        target=replace(base.target, model="/models/m"),
        verdict=Verdict(decision, "it was measured", "confirm", config, RATIO),
        choice=Choice(config, server_args(deployment, config), {}),
        schedule={1: 0} if config.is_plain else schedule or LOADS,
    )


def document(form: str, profile: Profile) -> dict[str, Any]:
    """The YAML that an export wrote."""
    loaded: dict[str, Any] = yaml.safe_load(FORMS[form](profile).text)
    return loaded


def test_command_offers_every_form() -> None:
    """What ``--help`` shows is what there is."""
    assert tuple(FORMS) == FORM_NAMES


def test_loads_between_two_measured_ones_take_the_nearer_by_ratio() -> None:
    """From 8 to 32 the middle is 16; neighbours of one depth are one range."""
    assert slots(profile_of(EAGLE3)) == (Slot(1, 16, 5), Slot(17, None, 0))


@given(
    st.dictionaries(st.integers(1, 600), st.integers(0, 8), min_size=1, max_size=6).map(
        lambda found: dict(sorted(found.items()))
    )
)
def test_ranges_cover_every_batch_size_once(schedule: dict[int, int]) -> None:
    """From 1 without gap or overlap, and each measured load has its own depth."""
    found = slots(make_profile(schedule=schedule))
    assert found[0].first == 1
    assert found[-1].last is None
    assert all(a.last == b.first - 1 and a.depth != b.depth for a, b in pairwise(found))
    for load, depth in schedule.items():
        at = [slot for slot in found if slot.first <= load <= (slot.last or load)]
        assert [slot.depth for slot in at] == [depth]


def test_adaptive_file_has_one_candidate_a_range() -> None:
    """SGLang's own rule has nothing to choose, so the measured schedule holds."""
    export = FORMS["sglang-adaptive"](profile_of(EAGLE3))
    assert json.loads(export.text) == {
        "1": {"candidate_steps": [5]},
        "17": {"candidate_steps": [0]},
    }
    assert any("overlap" in note for note in export.notes)


@pytest.mark.parametrize("config", [TREE, SMALL])
def test_adaptive_file_is_refused_where_the_engine_would_ignore_it(config: SpecConfig) -> None:
    """SGLang would fall back to static settings with a warning in its log."""
    with pytest.raises(ConfigError, match="topk=1"):
        FORMS["sglang-adaptive"](profile_of(config))


def test_vllm_gets_its_schedule_with_closed_ranges() -> None:
    """Triples of first, last and length, the last up to the admission limit."""
    found = document("vllm", profile_of(EAGLE3))
    assert found["speculative-config"] == {
        "method": "eagle3",
        "model": "/models/head",
        "num_speculative_tokens": 5,
        "num_speculative_tokens_per_batch_size": [[1, 16, 5], [17, 64, 0]],
    }
    assert (found["model"], found["max-num-seqs"], found["tensor-parallel-size"]) == (
        *("/models/m", 64),
        1,
    )


def test_vllm_lengths_never_exceed_the_window() -> None:
    """``num_speculative_tokens`` is the longest of all ranges."""
    found = document("vllm", profile_of(SMALL, {1: 4, 8: 3}))["speculative-config"]
    assert found["num_speculative_tokens"] == 4


def test_vllm_cannot_draft_trees_and_says_so() -> None:
    """A tree becomes a chain, with a note in the file."""
    export = FORMS["vllm"](profile_of(TREE, {1: 4}))
    assert "# vLLM drafts a chain: the tree of topk=4" in export.text
    assert "num_speculative_tokens_per_batch_size" not in export.text


def test_tensorrt_llm_schedule_ends_where_drafting_does() -> None:
    """Keys are the last batch sizes of their ranges; above them it does not draft."""
    found = document("tensorrt-llm", profile_of(EAGLE3))["speculative_config"]
    assert found["draft_len_schedule"] == {16: 5}
    assert found["decoding_type"] == "Eagle3"
    assert found["max_draft_len"] == 5


def test_tensorrt_llm_refuses_a_schedule_that_rises() -> None:
    """Its first range must have the longest drafts, else its own check fails at start."""
    export = FORMS["tensorrt-llm"](profile_of(EAGLE3, {1: 0, 8: 5}))
    assert "draft_len_schedule:" not in export.text
    assert any("must begin with the longest" in note for note in export.notes)


def test_tensorrt_llm_gets_a_tree_within_its_bounds() -> None:
    """Between one path and every node of every level."""
    found = document("tensorrt-llm", profile_of(TREE, {1: 4}))["speculative_config"]
    assert found["use_dynamic_tree"] is True
    assert 4 <= found["max_total_draft_tokens"] == 15 <= 4 * 4


@pytest.mark.parametrize(
    ("form", "config"),
    [("vllm", SpecConfig("UNO", 3, 1, 4)), ("tensorrt-llm", SpecConfig("DSPARK", None, 1, 4))],
)
def test_unknown_methods_are_refused_by_name(form: str, config: SpecConfig) -> None:
    """An engine without the method is not given something else."""
    with pytest.raises(ConfigError, match=f"has no {config.algorithm}"):
        FORMS[form](profile_of(config, {1: 3}))


def test_kubernetes_starts_the_same_server() -> None:
    """The container's arguments are the profile's flags, and the GPUs are counted."""
    profile = profile_of(EAGLE3)
    container = document("k8s", profile)["containers"][0]
    assert container["args"][: len(profile.to_argv())] == profile.to_argv()
    assert container["image"] == "lmsysorg/sglang:v0.5.23"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    assert "mount the models' folders" in FORMS["k8s"](profile).text


def test_kubernetes_is_refused_for_a_cpu() -> None:
    """Stock images have no CPU kernels."""
    with pytest.raises(ConfigError, match="for GPUs"):
        FORMS["k8s"](make_profile())


@pytest.mark.parametrize("form", ["args", "json", "vllm", "tensorrt-llm", "k8s"])
def test_plain_decoding_is_exported_as_plain_with_the_reason(form: str) -> None:
    """Nobody is given speculation that did not pay."""
    export = FORMS[form](profile_of(PLAIN))
    assert "speculative" not in export.text.replace("server_args", "")
    assert "plain decoding: it was measured" in export.notes


def test_command_writes_the_file_and_says_what_is_lost(tmp_path: Path) -> None:
    """Notes go to standard error; the model may lie elsewhere."""
    save_profile(tmp_path / "p.yaml", profile_of(EAGLE3))
    run = ["export", str(tmp_path / "p.yaml"), "--model", "/other", "--format"]
    result = CliRunner().invoke(cli, [*run, "vllm", "-o", str(tmp_path / "v.yaml")])
    assert result.exit_code == 0
    assert "note: measured with SGLang" in result.stderr
    assert yaml.safe_load((tmp_path / "v.yaml").read_text())["model"] == "/other"
    result = CliRunner().invoke(cli, [*run, "args"])
    assert shlex.split(result.stdout)[:2] == ["--model-path", "/other"]
    assert "the measured schedule is 5 from batch size 1, 0 from batch size 17" in result.stderr


def test_command_refuses_in_one_line(tmp_path: Path) -> None:
    """A form that cannot hold the profile is a usage error."""
    save_profile(tmp_path / "p.yaml", profile_of(PLAIN))
    command = ["export", str(tmp_path / "p.yaml"), "--format", "sglang-adaptive"]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 2
    assert "deploys plain decoding: it was measured" in result.stderr
