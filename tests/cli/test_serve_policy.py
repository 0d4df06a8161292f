"""``autospec serve`` and its policy: asked for, verified after start, said or refused."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autospec.config import PLAIN
from autospec.control.status import PluginStatus, write_status
from autospec.errors import ConfigError, EngineError
from autospec.evidence import StepTime
from autospec.profile import ArgValue, Profile, load_profile, save_profile
from autospec.tuning import steer
from autospec.tuning.steer import Steered, plan_steering, require_steered
from tests.cli import fake_autospec
from tests.cli.conftest import Run
from tests.test_profile import NGRAM


@pytest.fixture
def measured(profile: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A profile with step times, so that a policy can be had; its status goes to a folder here."""
    rows = (StepTime(PLAIN, 1, 1.0, 10.0, 99), StepTime(NGRAM, 1, 1.0, 14.0, 99))
    profile = replace(profile, step_times=rows)
    save_profile(tmp_path / "p.yaml", profile)
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path / "cache"))
    for name in ("AUTOSPEC_PROFILE", "AUTOSPEC_POLICY", "AUTOSPEC_TRACE", "SGLANG_PLUGINS"):
        monkeypatch.delenv(name, raising=False)
    return profile


def until_ready(folder: Path, arguments: Sequence[str] = ()) -> tuple[list[str], int]:
    """What ``autospec serve`` says until it is ready or ends, and its exit code after SIGTERM."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, fake_autospec.__file__, "serve", "p.yaml", "--port", port]
    said: list[str] = []
    with subprocess.Popen(
        [*command, *arguments],
        cwd=folder,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line.strip())
            if line.startswith("ready"):
                process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)
    return said, process.returncode


@pytest.mark.usefixtures("measured")
def test_serve_says_which_policy_is_at_work(tmp_path: Path) -> None:
    """The plugin itself said so, in a file that is gone when the server is."""
    said, code = until_ready(tmp_path)
    assert "policy throughput: switches NGRAM on and off" in said
    assert "plugin: switches NGRAM on and off" in said
    assert said[-2].startswith("ready") or said[-1].startswith("ready")
    assert code == 130
    assert list((tmp_path / "cache" / "status").glob("*.json")) == []


@pytest.mark.usefixtures("measured")
def test_serve_fails_where_the_plugin_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left with a server that only seems to be steered."""
    monkeypatch.setenv("FAKE_SGLANG_FAULT", "no_plugin")
    said, code = until_ready(tmp_path)
    assert code == 1
    assert "runs without autospec's plugin" in said[-1]


@pytest.mark.usefixtures("measured")
def test_no_policy_starts_the_same_server_without(tmp_path: Path) -> None:
    """It says so, and asks the plugin for nothing."""
    said, code = until_ready(tmp_path, ["--no-policy"])
    assert "no policy, as asked for" in said
    assert not any(line.startswith("plugin") for line in said)
    assert code == 130


@pytest.mark.usefixtures("measured")
def test_policies_that_cannot_be_used_are_refused_before_any_launch(run: Run) -> None:
    """A name that is none, and two wishes at once."""
    unknown = run("serve", "p.yaml", "--policy", "no-such")
    assert (unknown.exit_code, "no-such" in unknown.stderr) == (2, True)
    both = run("serve", "p.yaml", "--policy", "off", "--no-policy")
    assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)


def test_named_policy_is_found_from_any_folder(measured: Profile, tmp_path: Path) -> None:
    """A file's path becomes absolute, as the profile's does."""
    policy = tmp_path / "mine.yaml"
    policy.write_text("schema: 1\nkind: fixed\n")
    steered = plan_steering(
        tmp_path / "p.yaml", measured, policy=str(policy), environ={"SGLANG_PLUGINS": "other"}
    )
    assert steered.decides
    assert steered.environment == {
        "AUTOSPEC_PROFILE": str(tmp_path / "p.yaml"),
        "AUTOSPEC_POLICY": str(policy),
        "SGLANG_PLUGINS": "other,autospec",
    }


def test_trace_takes_the_policys_place(measured: Profile, tmp_path: Path) -> None:
    """What the user's environment asks for is passed on, and said."""
    steered = plan_steering(
        tmp_path / "p.yaml", measured, environ={"AUTOSPEC_TRACE": str(tmp_path / "t.jsonl")}
    )
    assert not steered.decides
    assert steered.environment["AUTOSPEC_TRACE"] == str(tmp_path / "t.jsonl")
    assert "records a trace" in steered.reason


def test_profile_without_step_times_is_served_without_a_policy(
    profile: Profile, tmp_path: Path
) -> None:
    """And says why; a policy that was named is an error instead."""
    steered = plan_steering(tmp_path / "p.yaml", profile, environ={})
    assert steered.asked is None
    assert "no policy: " in steered.reason
    assert "step_times" in steered.reason
    with pytest.raises(Exception, match="step_times"):
        plan_steering(tmp_path / "p.yaml", profile, policy="fixed", environ={})


def test_plain_profile_has_nothing_to_switch(measured: Profile, tmp_path: Path) -> None:
    """So a named policy is a mistake."""
    arguments: dict[str, ArgValue] = {"model_path": "m", "device": "cpu"}
    verdict = replace(measured.verdict, decision="slower")
    plain = replace(
        measured,
        verdict=verdict,
        choice=replace(measured.choice, config=PLAIN, server_args=arguments),
    )
    assert plan_steering(tmp_path / "p.yaml", plain, environ={}).asked is None
    with pytest.raises(ConfigError, match="nothing to switch"):
        plan_steering(tmp_path / "p.yaml", plain, policy="off", environ={})


def test_by_hand_the_environment_brings_the_policy(
    measured: Profile, run: Run, tmp_path: Path
) -> None:
    """``args --env`` and ``environment_variables`` name the profile's own file."""
    wanted = {"AUTOSPEC_PROFILE": str(tmp_path / "p.yaml")}
    assert load_profile(tmp_path / "p.yaml").environment_variables() == wanted
    assert measured.environment_variables() == {}
    assert f"AUTOSPEC_PROFILE={tmp_path / 'p.yaml'}" in run("args", "p.yaml", "--env").stdout
    assert json.loads(run("args", "p.yaml", "--json").stdout)["environment"] == wanted


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"profile": "/other.yaml"}, "uses profile /other.yaml"),
        ({"active": False, "reason": "gave up"}, "not active: gave up"),
        ({"pid": 1}, "without autospec's plugin"),
    ],
)
def test_word_of_another_plugin_is_not_taken(
    measured: Profile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, object],
    says: str,
) -> None:
    """Another profile's, a failed one's, another server's."""
    import os

    path = tmp_path / "s.json"
    monkeypatch.setattr(steer, "status_path", lambda _port: path)
    steered = plan_steering(tmp_path / "p.yaml", measured, environ={})
    assert isinstance(steered, Steered)
    good = PluginStatus(True, "fine", os.getpid(), 0.0, profile=str(tmp_path / "p.yaml"))
    write_status(path, good)
    assert require_steered(steered, port=1, pid=os.getpid()) == good
    write_status(path, replace(good, **change))  # type: ignore[arg-type]  # as parametrized
    with pytest.raises(EngineError, match=says):
        require_steered(steered, port=1, pid=os.getpid(), patience_s=0.2)
