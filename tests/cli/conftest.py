"""What the command-line tests share: a model's folder, prompts, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autospec.cli import cli
from autospec.engine.models import read_model
from autospec.profile import Profile, save_profile
from autospec.tuning.prepare import describe_environment
from tests.cli import fake_autospec
from tests.test_profile import make_profile

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32000,
    "hidden_size": 64,
    "max_position_embeddings": 2048,
}

Run = Callable[..., Result]


def write_model(folder: Path, **changes: object) -> Path:
    """A folder that reads as a model; the fake server needs no more."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))
    (folder / "model.safetensors").write_bytes(b"weights of " + folder.name.encode())
    return folder


def write_prompts(path: Path, count: int = 24) -> Path:
    """Prompts in two classes."""
    lines = [
        {"prompt": f"Question number {i} about topic {i * 7}", "class": ("edit", "chat")[i % 2]}
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A target model's folder."""
    return write_model(tmp_path / "model")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """A prompt file with enough prompts for concurrency 4."""
    return write_prompts(tmp_path / "prompts.jsonl")


def make_run(patches: pytest.MonkeyPatch, folder: Path) -> Run:
    """The command line in a folder, on the fake engine."""
    fake_autospec.patch(patches)
    patches.setenv("FAKE_SGLANG_STEP_S", "0.001")

    def invoke(*arguments: object) -> Result:
        patches.chdir(folder)
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return invoke


def study_arguments(model: Path, prompts: Path) -> list[object]:
    """A small study: plain decoding and two n-gram configurations, one round for the better one.

    Every candidate is tried, and none stopped early, so that what a test finds does not hang on
    this machine's noise.
    """
    return [
        *("tune", model, "--prompts", prompts, "--device", "cpu", "--max-new-tokens", 12),
        *("--requests-per-pass", 4, "--concurrency", "1,4", "--confirm-rounds", 1),
        *("--sampler", "grid", "--no-race", "--finalists", 1),
        *("--space", "tokens=4,8 breadth=2 match=BFS", "--study", "study", "-o", "out.yaml"),
    ]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """The command line in an empty folder, on the fake engine."""
    run = make_run(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)
    return run


@pytest.fixture
def tune_arguments(model: Path, prompts: Path) -> list[object]:
    """The small study's command."""
    return study_arguments(model, prompts)


@pytest.fixture
def profile(model: Path, tmp_path: Path) -> Profile:
    """A profile of this machine and model, with n-gram drafting chosen, saved as p.yaml."""
    target = read_model(str(model))
    base = make_profile()
    arguments = {**base.server_args(), "model_path": target.name, "device": "cpu"}
    here = describe_environment(fake_autospec._detect("cpu"), "bfloat16", 1)
    # The fake engine needs no kernels of autospec's.
    here = replace(here, cpu_kernels="native")
    profile = replace(
        base,
        target=replace(base.target, model=target.name, digest=target.digest),
        environment=here,
        choice=replace(base.choice, server_args=arguments),
    )
    save_profile(tmp_path / "p.yaml", profile)
    return profile
