"""Deployments and configurations as SGLang's flags, and back."""

from __future__ import annotations

import argparse
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.argv import to_argv
from autospec.config import PLAIN, SpecConfig
from autospec.engine.args import (
    RESOLVED_KEYS,
    Deployment,
    adjusted,
    config_of,
    differences,
    server_args,
)
from autospec.engine.constraints import violations
from autospec.engine.extra import extra_args
from autospec.errors import ConfigError
from tests.engine.strategies import valid_configs

GPU = Deployment(model="/models/big", device="cuda", max_running_requests=32)


@given(valid_configs())
def test_a_valid_configuration_comes_back_from_its_flags(config: SpecConfig) -> None:
    """Flags hold the whole of a configuration that breaks no rule."""
    assert violations(config, GPU) == ()

    assert config_of(server_args(GPU, config)) == config


@given(valid_configs())
def test_arms_share_all_that_is_not_speculative(config: SpecConfig) -> None:
    """Every arm gets the plain server's arguments, the admission limit among them, and its own."""
    plain, arm = server_args(GPU, PLAIN), server_args(GPU, config)

    assert plain["max_running_requests"] == 32
    assert not [name for name in plain if name.startswith(("speculative_", "uno_"))]
    assert {name: value for name, value in arm.items() if name in plain} == plain
    assert all(name.startswith(("speculative_", "uno_")) for name in arm.keys() - plain.keys())


def test_a_tree_method_is_given_its_whole_shape() -> None:
    """Steps, topk and draft tokens go together, since SGLang cannot complete a part of them."""
    args = server_args(GPU, SpecConfig.parse("EAGLE3 steps=3 topk=4 tokens=8 draft=/models/head"))

    assert {name: value for name, value in args.items() if name.startswith("speculative_")} == {
        "speculative_algorithm": "EAGLE3",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8,
        "speculative_draft_model_path": "/models/head",
    }


def test_settings_left_to_sglang_are_not_named() -> None:
    """A None of the deployment leaves its flag out."""
    argv = to_argv(server_args(GPU, PLAIN))

    assert argv == shlex.split(
        "--model-path /models/big --device cuda --dtype auto --tp-size 1 "
        "--max-running-requests 32 --random-seed 0 --log-level info"
    )


def test_what_a_server_derived_is_not_read_as_asked_for() -> None:
    """NGRAM's steps and topk and another method's options are no part of the configuration."""
    resolved = {
        "speculative_algorithm": "NGRAM",
        "speculative_num_steps": 1,
        "speculative_eagle_topk": 10,
        "speculative_num_draft_tokens": 12,
        "speculative_ngram_max_bfs_breadth": 10,
        "speculative_dflash_block_size": 16,
    }

    assert str(config_of(resolved)) == "NGRAM tokens=12 breadth=10"


def test_server_arguments_without_an_algorithm_are_plain() -> None:
    """A server that does not speculate is PLAIN, whatever defaults it reports."""
    resolved = {"speculative_algorithm": None, "speculative_ngram_match_type": "BFS"}

    assert config_of(resolved) == PLAIN


def test_a_foreign_option_is_an_error_not_a_lost_setting() -> None:
    """An option that the method cannot express does not vanish silently."""
    config = SpecConfig("EAGLE", options=(("ngram_match_type", "BFS"),))

    with pytest.raises(ConfigError, match="EAGLE has no setting for ngram_match_type"):
        server_args(GPU, config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_running_requests": 0}, "max_running_requests is 0, must be at least 1"),
        ({"tp_size": 0}, "tp_size is 0"),
        ({"page_size": 0}, "page_size is 0"),
        ({"random_seed": -1}, "random_seed is -1"),
        ({"mem_fraction_static": 1.0}, "mem_fraction_static is 1.0, must lie between 0 and 1"),
        ({"mem_fraction_static": float("nan")}, "mem_fraction_static is nan"),
        ({"model": ""}, "model is empty"),
    ],
)
def test_a_deployment_out_of_range_is_refused(change: dict[str, object], message: str) -> None:
    """A wrong number is named with what would be right."""
    fields: dict[str, object] = {"model": "m", "device": "cpu", "max_running_requests": 1}

    with pytest.raises(ConfigError, match=message):
        Deployment(**(fields | change))  # type: ignore[arg-type]  # wrong on purpose


def test_extra_flags_reach_the_server() -> None:
    """Pass-through flags become keywords of the right kind, other spellings the canonical one."""
    extra = shlex.split(
        "--trust-remote-code --chunked-prefill-size -1 --schedule-conservativeness=0.5 "
        "--lora-paths a=b c --expert-parallel-size 2 --revision 1.10 --served-model-name 007 "
        "--log-level error"
    )
    deployment = Deployment(model="m", device="cuda", max_running_requests=1, extra=tuple(extra))

    args = server_args(deployment, PLAIN)

    assert args["trust_remote_code"] is True
    assert args["chunked_prefill_size"] == -1
    assert args["schedule_conservativeness"] == 0.5
    assert args["lora_paths"] == ["a=b", "c"]
    assert args["ep_size"] == 2
    assert args["revision"] == "1.10"
    assert args["served_model_name"] == "007"
    assert args["log_level"] == "error"


@pytest.mark.parametrize(
    "flag",
    [
        "--speculative-algorithm",
        "--speculative-num-steps=3",
        "--speculative-draft-model",
        "--no-speculative-enable-w4a4-mxfp4-megamoe",
        "--spec",
        "--uno-lora-path",
        "--port",
        "--host",
        "--model-path",
        "--model",
        "--tensor-parallel-size",
        "--tp",
        "--max-running",
        "--mem-fraction-static",
        "--config",
        "--help",
    ],
)
def test_a_flag_that_autospec_sets_is_refused_by_name(flag: str) -> None:
    """The arms would differ, or hide a setting; a shortened spelling counts as well."""
    with pytest.raises(ConfigError, match=flag.partition("=")[0]):
        Deployment(model="m", device="cpu", max_running_requests=1, extra=(flag, "1"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["7"], "'7' is not a flag"),
        (["-h"], "'-h' is not a flag"),
        (["--A"], "'--A' is not a flag"),
        (["--zz", "--"], "'--' is not a flag"),
        (["--enable-metrics", "--enable-metrics"], "--enable-metrics is given twice"),
        (["--ep", "2", "--ep-size", "3"], "--ep-size is given twice"),
    ],
)
def test_malformed_extra_flags_are_refused(words: list[str], message: str) -> None:
    """A stray value, a bad flag and a flag given twice are named."""
    with pytest.raises(ConfigError, match=message):
        extra_args(words)


@given(st.text() | st.integers().map(str) | st.floats().map(str))
def test_an_extra_value_keeps_its_text(text: str) -> None:
    """A value turned into a number and back is the text that the user wrote."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--zz")

    assert parser.parse_args(to_argv(extra_args([f"--zz={text}"]))).zz == text


def test_changed_values_are_told_and_others_are_not() -> None:
    """One line for each value that the server changed, none for its own choices or aliases."""
    requested = {
        "speculative_algorithm": "NEXTN",
        "speculative_num_draft_tokens": 8,
        "dtype": "auto",
        "random_seed": 1,
        "mem_fraction_static": 0.7,
        "not_reported": 3,
        "lora_paths": ("a",),
    }
    resolved = {
        "speculative_algorithm": "EAGLE",
        "speculative_num_draft_tokens": 4,
        "dtype": "bfloat16",
        "random_seed": "1",
        "mem_fraction_static": 0.7,
        "lora_paths": ["a"],
    }

    assert adjusted(requested, resolved) == ("speculative_num_draft_tokens: asked 8, got 4",)


def test_differences_of_arms_leave_speculation_out() -> None:
    """Two arms differ in what is no part of their configurations: backend, pages, capacity."""
    plain = {"attention_backend": "fa3", "page_size": 1, "speculative_algorithm": None, "pid": 1}
    arm = {
        "attention_backend": "flashinfer",
        "page_size": 1,
        "max_total_num_tokens": 900,
        "speculative_algorithm": "NGRAM",
        "pid": 2,
    }

    assert differences(plain, arm) == (
        "max_total_num_tokens: None / 900",
        "attention_backend: fa3 / flashinfer",
    )
    assert differences(plain, plain) == ()


@pytest.mark.engine
def test_every_resolved_key_is_one_of_the_server_info() -> None:
    """The names are those of this SGLang's arguments, or ones that only a running server adds."""
    server_args_module = pytest.importorskip("sglang.srt.server_args")
    utils = pytest.importorskip("sglang.srt.arg_groups.arg_utils")
    names = {field.name for field in utils.record_fields(server_args_module.ServerArgs)}

    assert set(RESOLVED_KEYS) - names == {"max_total_num_tokens", "decode_cuda_graph_bs"}
    assert set(server_args(GPU, PLAIN)) <= names


@pytest.mark.parametrize(
    "flag", ["--api-key", "--admin-api-key", "--admin", "--ssl-keyfile-password"]
)
def test_secrets_are_refused_where_they_would_be_stored(flag: str) -> None:
    """A study and its profile keep the flags; the value is not in the message either."""
    with pytest.raises(ConfigError, match="autospec serve") as caught:
        Deployment(model="m", device="cpu", max_running_requests=1, extra=(flag, "hush"))
    assert "hush" not in str(caught.value)
