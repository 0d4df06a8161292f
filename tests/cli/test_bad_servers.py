"""``autospec tune`` on servers that do not start, die or fall silent."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from autospec.profile import load_profile
from autospec.tune.study import Study
from tests.cli.conftest import Run, write_model


@pytest.fixture(autouse=True)
def no_server_left() -> object:
    """Whatever a test does, it leaves no process behind."""
    yield
    left = psutil.Process().children(recursive=True)
    assert left == []


def test_crash_and_out_of_memory_are_trials_like_others(
    run: Run, tune_arguments: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that cannot start is recorded with its log, and the study goes on."""
    draft = write_model(tmp_path / "draft")
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "oom_on:STANDALONE,crash_on:EAGLE")
    space = "NGRAM.tokens=8 NGRAM.breadth=2 match=BFS steps=3 topk=1"
    result = run(
        *tune_arguments,
        *("--draft", f"STANDALONE={draft}", "--draft", f"EAGLE={draft}", "--space", space),
    )
    assert result.exit_code == 0, result.output
    failed = {
        failure.config.algorithm: failure.error for failure in load_profile("out.yaml").failed
    }
    assert set(failed) == {"STANDALONE", "EAGLE"}
    assert "memory" in failed["STANDALONE"]
    with Study.open(Path("study")) as study:
        tails = [trial.log_tail for trial in study.trials() if trial.state == "failed"]
    assert all(tails)
    assert "did not run" in result.stdout


def test_plain_that_cannot_start_ends_the_study(
    run: Run, tune_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a baseline there is nothing to compare with."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "crash_on:PLAIN")
    result = run(*tune_arguments)
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr.splitlines()[-1]


def test_server_that_dies_in_a_pass_is_a_failed_trial(
    run: Run, tune_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A death in the middle of measuring loses one trial, not the study."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "die_after:9@NGRAM")
    result = run(*tune_arguments)
    assert result.exit_code == 0, result.output
    profile = load_profile("out.yaml")
    assert len(profile.failed) == 2
    assert profile.choice.config.is_plain
    assert "died" in profile.failed[0].error


def test_hung_launch_is_given_up(
    run: Run, tune_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time allowed to become ready is obeyed."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "hang_on:NGRAM")
    result = run(*tune_arguments, "--launch-timeout", "3s", "--max-trials", 1)
    assert result.exit_code == 0, result.output
    assert "not ready after 3 s" in load_profile("out.yaml").failed[0].error


def test_server_that_falls_silent_is_a_failed_trial(
    run: Run, tune_arguments: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time that a server may send nothing is the user's to set."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "stall:9@NGRAM")
    result = run(*tune_arguments, "--stall-timeout", "1s", "--max-trials", 1)
    assert result.exit_code == 0, result.output
    profile = load_profile("out.yaml")
    assert "requests were lost" in profile.failed[0].error
    assert "1 s" in profile.failed[0].error
    assert profile.choice.config.is_plain
