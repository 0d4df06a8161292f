"""Ctrl-C and SIGKILL: servers stop, the study stays, and it goes on where it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from autospec.profile import load_profile
from autospec.tune.study import Study, Trial
from tests.cli import fake_autospec
from tests.cli.conftest import Run


def start(folder: Path, arguments: list[object]) -> subprocess.Popen[str]:
    """``autospec`` as a process of its own, slow enough to be caught in a trial."""
    return subprocess.Popen(
        [sys.executable, fake_autospec.__file__, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "FAKE_SGLANG_STEP_S": "0.004"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def trials(folder: Path) -> tuple[Trial, ...]:
    """The trials so far."""
    if not (folder / "study" / "study.sqlite").exists():
        return ()
    with Study.open(folder / "study") as study:
        return study.trials()


def wait_for_second_trial(folder: Path) -> list[psutil.Process]:
    """Wait until a server runs for the second trial; gives the server's processes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        running = [trial for trial in trials(folder) if trial.state == "running"]
        servers = [
            process
            for process in psutil.process_iter(["cmdline"])
            if str(folder) in " ".join(process.info["cmdline"] or ())
            and "fake_sglang" in " ".join(process.info["cmdline"])
        ]
        if running and running[0].id == 2 and servers:
            return servers
        time.sleep(0.05)
    pytest.fail("the second trial did not begin within 60 s")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_study_stopped_in_mid_trial_goes_on(
    run: Run, tune_arguments: list[object], tmp_path: Path, number: signal.Signals
) -> None:
    """No server is left behind, no finished trial is lost, and the resumed study finishes."""
    process = start(tmp_path, tune_arguments)
    servers = wait_for_second_trial(tmp_path)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    _, alive = psutil.wait_procs(servers, timeout=30)
    assert alive == []
    first = trials(tmp_path)[0]
    assert first.state == "complete"
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "autospec tune --resume study" in stderr
    result = run("tune", "--resume", "study")
    assert result.exit_code == 0, result.output
    assert trials(tmp_path)[0] == first
    assert len({point.config for point in load_profile("out.yaml").points}) == 2
    assert all(trial.state != "running" for trial in trials(tmp_path))


def test_two_autospecs_cannot_run_one_study(
    run: Run, tune_arguments: list[object], tmp_path: Path
) -> None:
    """The second is refused; the first is not disturbed."""
    process = start(tmp_path, tune_arguments)
    wait_for_second_trial(tmp_path)
    result = run("tune", "--resume", "study")
    assert result.exit_code == 1
    assert "another autospec" in result.stderr
    assert process.poll() is None
    assert [trial.state for trial in trials(tmp_path)] == ["complete", "running"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
