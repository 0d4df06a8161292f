"""Depths of a chain share a launch: one server, a trial a depth, the same figures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autospec.config import SpecConfig
from autospec.measurement import Measurement
from autospec.profile import Profile, load_profile
from autospec.tune.study import Study, Trial
from tests.cli import fake_autospec
from tests.cli.conftest import Run, write_model


@pytest.fixture(autouse=True)
def no_server_left() -> object:
    """Whatever a test does, it leaves no process behind."""
    yield
    assert psutil.Process().children(recursive=True) == []


@pytest.fixture
def depths(model: Path, prompts: Path, tmp_path: Path) -> list[object]:
    """A study of a chain at depth 1, 2 and 4."""
    draft = write_model(tmp_path / "draft")
    return [
        *("tune", model, "--prompts", prompts, "--device", "cpu", "--max-new-tokens", 12),
        *("--draft", f"STANDALONE={draft}", "--algorithm", "standalone", "--concurrency", 2),
        *("--space", "steps=1,2,4 topk=1 tokens=8", "--requests-per-pass", 4),
        *("--confirm-rounds", 1, "--finalists", 1, "--sampler", "grid", "--no-race"),
        *("--study", "study", "-o", "out.yaml"),
    ]


def chains(folder: Path) -> list[tuple[Trial, Measurement]]:
    """The trials of the chain, in the order made."""
    with Study.open(folder / "study") as study:
        trials = [trial for trial in study.trials("tune") if not trial.config.is_plain]
        return [(trial, study.measurement(trial.id)) for trial in trials]


def launches(folder: Path) -> int:
    """Servers that were started with a chain before the confirmation."""
    names = sorted(path.name for path in (folder / "study" / "logs").iterdir())
    return sum("STANDALONE" in name for name in names)


def lengths(profile: Profile) -> dict[int, float]:
    """Accept length of each depth on the search's prompts."""
    return {
        row.config.num_steps or 0: row.accept_length or 0.0
        for row in profile.points
        if row.part == "tune"
    }


def test_depths_share_one_launch_and_show_what_launches_of_their_own_do(
    run: Run, depths: list[object], tmp_path: Path
) -> None:
    """A trial each; only the first launches; the profile names the launch; accept lengths agree."""
    result = run(*depths)
    assert result.exit_code == 0, result.output
    found = chains(tmp_path)
    assert [trial.config.num_steps for trial, _ in found] == [1, 2, 4]
    assert all(trial.state == "complete" for trial, _ in found)
    assert {measured.launched and measured.launched.num_steps for _, measured in found} == {4}
    assert [measured.launch_s > 0 for _, measured in found] == [True, False, False]
    for trial, measured in found:
        longest = max(len(r.correct_histogram) for r in measured.records())
        assert longest == (trial.config.num_steps or 0) + 1
    shared = load_profile("out.yaml")
    tuned = [row for row in shared.points if row.part == "tune"]
    assert all(row.launched is not None and row.launched.num_steps == 4 for row in tuned)
    assert all(row.launched is None for row in shared.points if row.part == "confirm")
    assert not list((tmp_path / "study").glob("orders-*"))
    once = launches(tmp_path)

    apart = ["apart" if word == "study" else word for word in depths]
    result = run(*apart, "--no-depth-sweep")
    assert result.exit_code == 0, result.output
    with Study.open(tmp_path / "apart") as study:
        rows = [t for t in study.trials("tune") if not t.config.is_plain]
        assert all(study.measurement(trial.id).launched is None for trial in rows)
    assert lengths(load_profile("out.yaml")) == pytest.approx(lengths(shared), rel=0.03)
    names = [path.name for path in (tmp_path / "apart" / "logs").iterdir()]
    assert sum("STANDALONE" in name for name in names) == once + 2


def test_structured_search_with_racing_launches_a_chain_once(
    run: Run, depths: list[object], tmp_path: Path
) -> None:
    """The defaults: whatever is tried of the chain, complete or stopped early, shares a launch."""
    given = [word for word in depths if word != "--no-race"]
    result = run(*("structured" if word == "grid" else word for word in given))
    assert result.exit_code == 0, result.output
    found = chains(tmp_path)
    assert found
    assert {trial.state for trial, _ in found} <= {"complete", "pruned"}
    assert [measured.launch_s > 0 for _, measured in found] == [True] + [False] * (len(found) - 1)


@pytest.mark.parametrize("fault", ["no_plugin", "disobedient"])
def test_server_that_does_not_obey_is_given_up(
    run: Run, depths: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It says why, and each depth has a launch of its own."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", fault)
    monkeypatch.setattr("autospec.tuning.chain._PATIENCE_S", 0.5)
    result = run(*depths)
    assert result.exit_code == 0, result.output
    assert "depths are launched one by one: the plugin does not run depth 1" in result.stderr
    found = chains(tmp_path)
    assert all(trial.state == "complete" for trial, _ in found)
    assert all(measured.launched is None for _, measured in found)


def test_study_killed_in_a_sweep_goes_on(run: Run, depths: list[object], tmp_path: Path) -> None:
    """The trial under way is put back, its server ends, and the rest is measured."""
    process = subprocess.Popen(
        [sys.executable, fake_autospec.__file__, *map(str, depths)],
        cwd=tmp_path,
        env={**os.environ, "FAKE_SGLANG_STEP_S": "0.01"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    servers = wait_for(tmp_path, process, steps=2)
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    _, alive = psutil.wait_procs(servers, timeout=30)
    assert alive == []
    result = run("tune", "--resume", "study")
    assert result.exit_code == 0, result.output
    with Study.open(tmp_path / "study") as study:
        trials = [trial for trial in study.trials("tune") if trial.config.num_steps == 2]
        assert [trial.state for trial in trials] == ["interrupted", "complete"]
        assert {t.config.num_steps for t in study.trials("tune") if t.state == "complete"} == {
            *(None, 1, 2, 4)
        }
    assert not list((tmp_path / "study").glob("orders-*"))


def wait_for(folder: Path, process: subprocess.Popen[bytes], *, steps: int) -> list[psutil.Process]:
    """The processes below one, once the trial at a depth runs."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / "study" / "study.sqlite").exists():
            with Study.open(folder / "study") as study:
                if any(
                    trial.state == "running" and trial.config.num_steps == steps
                    for trial in study.trials("tune")
                ):
                    return psutil.Process(process.pid).children(recursive=True)
        time.sleep(0.02)
    raise AssertionError("the trial never began")


def test_trees_and_other_methods_share_nothing(
    run: Run, tune_arguments: list[object], tmp_path: Path
) -> None:
    """N-gram drafting has no depths to order."""
    result = run(*tune_arguments)
    assert result.exit_code == 0, result.output
    assert all(measured.launched is None for _, measured in chains(tmp_path))
    assert SpecConfig.parse(str(chains(tmp_path)[0][0].config)).algorithm == "NGRAM"
