"""``autospec serve``, ``args`` and ``show``: from a profile to a server."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from autospec.config import PLAIN
from autospec.profile import Choice, Profile, Verdict, save_profile
from tests.cli import fake_autospec
from tests.cli.conftest import Run, write_model


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """``autospec serve`` as a process, ready; ended with SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, fake_autospec.__file__, "serve", "p.yaml", "--port", str(port)]
    with subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            assert process.stderr is not None
            while not (line := process.stderr.readline()).startswith("ready"):
                assert line, "autospec serve ended before it was ready"
            yield process, port
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


@pytest.mark.usefixtures("profile")
def test_serve_answers_with_the_profiles_settings_and_stops_cleanly(tmp_path: Path) -> None:
    """The server has the flags, pass-through ones too; SIGTERM leaves nothing behind."""
    with serving(tmp_path, "--", "--served-model-name", "mine") as (process, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info") as answer:
            info = json.load(answer)
        children = psutil.Process(process.pid).children(recursive=True)
    assert info["speculative_algorithm"] == "NGRAM"
    assert info["served_model_name"] == "mine"
    assert process.returncode == 130
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []


@pytest.mark.usefixtures("profile")
def test_serve_refuses_a_taken_port_at_once(run: Run) -> None:
    """SGLang itself would notice after two minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("serve", "p.yaml", "--port", port)
    assert result.exit_code == 1
    assert f"port {port}" in result.stderr


def test_plain_verdict_serves_plain_and_says_why(
    run: Run, profile: Profile, tmp_path: Path
) -> None:
    """Nobody is given speculation that did not pay."""
    arguments = {
        name: value
        for name, value in profile.server_args().items()
        if not name.startswith("speculative")
    }
    plain = replace(
        profile,
        verdict=Verdict("slower", "it makes 0.44x", "confirm", profile.verdict.best),
        choice=Choice(PLAIN, arguments, {}),
    )
    save_profile(tmp_path / "plain.yaml", plain)
    result = run("args", "plain.yaml")
    assert result.exit_code == 0
    assert "speculative" not in result.stdout
    assert "it makes 0.44x" in result.stderr


@pytest.mark.usefixtures("profile")
def test_args_is_what_a_shell_reads_back(run: Run, profile: Profile) -> None:
    """Quoted flags in one line; JSON holds the same and the keyword arguments."""
    assert shlex.split(run("args", "p.yaml").stdout) == profile.to_argv()
    document = json.loads(run("args", "p.yaml", "--json").stdout)
    assert document["argv"] == profile.to_argv()
    assert document["server_args"]["speculative_algorithm"] == "NGRAM"


@pytest.mark.parametrize("command", ["args", "serve"])
def test_other_model_is_refused_unless_forced(
    run: Run, profile: Profile, model: Path, command: str
) -> None:
    """The field that differs is named; only args can be forced here without a server."""
    (model / "model.safetensors").write_bytes(b"other weights of the same name")
    result = run(command, "p.yaml")
    assert result.exit_code == 1
    assert f"model digest {profile.target.digest!r}" in result.stderr
    assert run("args", "p.yaml", "--force").exit_code == 0


def test_other_engine_version_is_refused(run: Run, profile: Profile, tmp_path: Path) -> None:
    """Flags and speed belong to a version."""
    other = replace(profile, environment=replace(profile.environment, sglang="0.5.1"))
    save_profile(tmp_path / "p.yaml", other)
    result = run("args", "p.yaml")
    assert result.exit_code == 1
    assert "sglang '0.5.1'" in result.stderr


def test_same_model_elsewhere_is_welcome(run: Run, profile: Profile, tmp_path: Path) -> None:
    """A profile moves with ``--model``; another model is still refused."""
    moved = tmp_path / "moved"
    Path(profile.target.model).rename(moved)
    assert run("args", "p.yaml").exit_code == 2
    result = run("args", "p.yaml", "--model", moved)
    assert str(moved) in result.stdout
    other = write_model(tmp_path / "other")
    assert run("args", "p.yaml", "--model", other).exit_code == 1


@pytest.mark.usefixtures("profile")
def test_show_fits_80_columns_and_has_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sees the table, a program the document."""
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("show", "p.yaml")
    assert shown.exit_code == 0, shown.output
    assert "NGRAM tokens=8 breadth=4" in shown.stdout
    assert "1.40x" in shown.stdout
    rows = [line for line in shown.stdout.splitlines() if "PLAIN" in line or "NGRAM" in line]
    assert max(map(len, rows)) <= 80
    assert json.loads(run("show", "p.yaml", "--json").stdout)["schema"] == 1


def test_show_of_a_study_lists_its_trials(run: Run, tune_arguments: list[object]) -> None:
    """Finished or not, a study can be looked at."""
    assert run(*tune_arguments, "--max-trials", 1).exit_code == 0
    shown = run("show", "study").stdout
    assert "complete" in shown
    assert "autospec show study/profile.yaml" in shown
    document = json.loads(run("show", "study", "--json").stdout)
    assert document["trials"][0]["config"] == "PLAIN"
