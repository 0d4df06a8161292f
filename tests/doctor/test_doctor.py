"""The doctor: what stands in the way is found, each with what helps."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from autospec import demo, shipped
from autospec.cli import cli
from autospec.doctor import machine, software
from autospec.doctor.finding import Finding
from autospec.doctor.models import read_models
from autospec.doctor.run import Question, examine
from autospec.engine import guard
from autospec.engine.capabilities import SUPPORTED_SGLANG, Platform, detect
from autospec.engine.leftovers import find_servers
from autospec.engine.server import MARK
from autospec.errors import ConfigError, SchemaError
from tests.cli.conftest import write_model

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def platform() -> Platform:
    """A machine with a GPU and the tested engine."""
    return replace(
        detect("cpu"),
        device="cuda",
        accelerator="NVIDIA H100",
        driver="570.1",
        memory_gib=80.0,
        sglang_version=SUPPORTED_SGLANG,
        torch_version="2.9.1",
    )


def one(findings: Iterable[Finding], subject: str) -> Finding:
    """The only finding about something."""
    (found,) = [finding for finding in findings if finding.subject == subject]
    return found


def test_a_doubt_without_a_remedy_is_no_finding() -> None:
    """What cannot be helped is not worth a line."""
    with pytest.raises(SchemaError, match="fix"):
        Finding("disk", "warning", "it is full")


@pytest.mark.parametrize(
    ("version", "level"), [(SUPPORTED_SGLANG, "ok"), ("0.5.22", "blocks"), ("", "blocks")]
)
def test_only_the_tested_engine_passes(platform: Platform, version: str, level: str) -> None:
    """Another version has other flags and counters; the remedy installs the right one."""
    found = one(software.check_software(replace(platform, sglang_version=version), {}), "SGLang")
    assert found.level == level
    assert level == "ok" or "pip install" in str(found.fix)


def test_pretended_acceptance_blocks(platform: Platform) -> None:
    """Figures of a server that fakes acceptance would look wonderful."""
    findings = software.check_software(platform, {"SGLANG_SIMULATE_ACC_LEN": "3"})
    assert one(findings, "environment").fix == "unset SGLANG_SIMULATE_ACC_LEN"


def test_missing_tools_and_extras_are_named(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with the command that brings it."""
    monkeypatch.setattr("shutil.which", lambda _name, **_: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    fixes = {finding.fix for finding in software.check_software(platform, {})}
    assert {"apt install build-essential", "pip install 'sglang-autospec[report]'"} <= fixes


@pytest.mark.parametrize(
    ("driver", "level"), [("570.1", "blocks"), ("580.65", "ok"), ("", "blocks")]
)
def test_driver_must_know_the_cuda_of_torch(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, driver: str, level: str
) -> None:
    """CUDA 13 needs driver 580; a server would fail only when its model is loaded."""
    runtime = SimpleNamespace(metadata={"Name": "nvidia-cuda-runtime"}, version="13.0.96")
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [runtime])
    found = one(machine.check_device(replace(platform, driver=driver)), "driver")
    assert found.level == level


@pytest.mark.parametrize(("weights", "level"), [(0.0, "ok"), (70.0, "warning"), (90.0, "blocks")])
def test_weights_must_fit_into_free_memory(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, weights: float, level: str
) -> None:
    """What is over belongs to the KV cache."""
    monkeypatch.setattr(machine, "free_gpu_memory_gib", lambda: [79.0, 80.0])
    found = one(machine.check_room(platform, weights, 1), "memory")
    assert found.level == level
    assert one(machine.check_room(platform, weights, 4), "memory").level == "ok"


def test_full_disk_is_noticed(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that cannot be written is lost."""
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=2**20))
    found = [f for f in machine.check_room(platform, 0, 1) if f.subject == "disk"]
    assert {finding.level for finding in found} == {"warning"}


def test_taken_port_blocks() -> None:
    """SGLang would notice after loading the model."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        found = one(machine.check_servers("127.0.0.1", taken.getsockname()[1]), "port")
    assert found.level == "blocks"


def test_leftover_server_is_found_with_the_command_that_ends_it() -> None:
    """A server whose guard was killed; the shown command is run and it is gone."""
    left = subprocess.Popen(SLEEP, env={**os.environ, MARK: "a-test"})
    try:
        fixes = _fixes_of(left.pid, "leftover server")
        assert len(fixes) == 1
        subprocess.run(["/bin/sh", "-c", fixes[0]], check=True, timeout=10)
        assert left.wait(10) == -signal.SIGTERM
    finally:
        left.kill()
        left.wait()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_guarded_server_is_no_leftover(tmp_path: Path, *, elsewhere: bool) -> None:
    """A study that runs now is not told to be killed, nor is another installation's."""
    spawn: Any = guard.spawn
    if elsewhere:
        copy = tmp_path / "autospec" / "engine" / "guard.py"
        copy.parent.mkdir(parents=True)
        copy.write_bytes(Path(guard.__file__).read_bytes())
        spawn = runpy.run_path(str(copy))["spawn"]
    with (tmp_path / "log").open("wb") as log:
        watcher, pid = spawn(SLEEP, {MARK: "b-test"}, 1.0, log)
    assert pid is not None
    try:
        assert _fixes_of(pid, "leftover server") == []
        deadline = time.monotonic() + 10
        shown: list[Finding] = []
        while not shown and time.monotonic() < deadline:
            shown = [
                f for f in machine.check_servers("127.0.0.1", None) if f"process {pid})" in f.text
            ]
        assert [finding.subject for finding in shown] == ["running server"]
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait(20)
    assert not psutil.pid_exists(pid)


def test_process_that_lost_the_mark_belongs_to_its_server(tmp_path: Path) -> None:
    """One that names itself writes over its environment; it is no server of somebody else's."""
    sleep = "import time; time.sleep(60)"
    child = f"[sys.executable, '-c', {sleep!r}, 'sglang::scheduler'], env={{}}"
    program = f"import subprocess, sys; subprocess.Popen({child}); {sleep}"
    command = [sys.executable, "-c", program, "sglang.launch_server"]
    with (tmp_path / "log").open("wb") as log:
        watcher, pid = guard.spawn(command, {MARK: "c-test"}, 1.0, log)
    assert pid is not None
    try:
        deadline = time.monotonic() + 10
        while not psutil.Process(pid).children() and time.monotonic() < deadline:
            time.sleep(0.05)
        children = [process.pid for process in psutil.Process(pid).children()]
        found = [server for server in find_servers() if {pid, *children} & {*server.pids}]
        assert [(server.pids, server.ours) for server in found] == [
            (tuple(sorted((pid, *children))), True)
        ]
        assert len(children) == 1
    finally:
        assert watcher.stdin is not None
        watcher.stdin.close()
        watcher.wait(20)


def _fixes_of(pid: int, subject: str) -> list[str]:
    found = machine.check_servers("127.0.0.1", None)
    fixes = [str(f.fix) for f in found if f.subject == subject]
    return [fix for fix in fixes if re.search(rf"\b{pid}\b", fix)]


def test_draft_models_are_compared_with_the_target(tmp_path: Path) -> None:
    """Vocabulary, kind and size; each doubt names the draft model."""
    target = write_model(tmp_path / "target")
    (target / "model.safetensors").write_bytes(b"x" * 1000)
    foreign = write_model(tmp_path / "foreign", vocab_size=5)
    head = write_model(tmp_path / "head", architectures=["LlamaForCausalLMEagle3"])
    large = write_model(tmp_path / "large")
    (large / "model.safetensors").write_bytes(b"x" * 900)
    drafts = [
        ("STANDALONE", str(foreign)),
        ("EAGLE", str(head)),
        ("EAGLE3", str(large)),
    ]
    found = read_models(str(target), drafts)
    levels = [(f.subject, f.level) for f in found.findings if f.level != "ok"]
    assert levels == [
        ("STANDALONE draft", "blocks"),
        ("EAGLE draft", "warning"),
        ("EAGLE3 draft", "warning"),
        ("EAGLE3 draft", "warning"),
    ]
    assert found.weights_gib == pytest.approx(1900 / 2**30)


def test_missing_model_blocks_and_the_rest_is_still_looked_at(tmp_path: Path) -> None:
    """One fault does not hide the others."""
    checkup = examine(Question(model=str(tmp_path / "nothing"), device="cpu"))
    assert checkup.blocked
    subjects = [finding.subject for finding in checkup.findings]
    assert {"target", "memory", "servers"} & set(subjects) >= {"target", "memory"}


def test_methods_that_cannot_run_are_named_with_the_rule(tmp_path: Path) -> None:
    """A search would find nothing to launch."""
    target, draft = write_model(tmp_path / "t"), write_model(tmp_path / "d")
    question = Question(
        model=str(target), drafts=(("DFLASH", str(draft)),), device="cpu", extra=("--page-size-x",)
    )
    with pytest.raises(ConfigError):
        examine(replace(question, algorithms=("EAGLE3",)))
    found = [f for f in examine(question).findings if f.subject == "configuration"]
    assert [f.level for f in found] == ["blocks", "ok"]
    assert "DFLASH" in found[0].text


def test_command_says_what_blocks_by_its_exit_code(tmp_path: Path) -> None:
    """Scripts can ask; the JSON has every finding."""
    model = write_model(tmp_path / "m")
    fits = ["doctor", str(model), "--device", "cpu", "--config", "NGRAM tokens=8", "--json"]
    result = CliRunner().invoke(cli, fits)
    document = json.loads(result.stdout)
    assert result.exit_code == int(document["blocked"])
    assert {"subject", "level", "text"} <= document["findings"][0].keys()
    assert any(f.get("link", "").endswith("/23392") for f in document["findings"])
    broken = CliRunner().invoke(cli, ["doctor", str(tmp_path / "no"), "--device", "cpu"])
    assert broken.exit_code == 1
    assert "fix: give a folder" in broken.stdout
    assert "in the way" in broken.stdout.splitlines()[-1]


@pytest.mark.usefixtures("profile")
def test_profile_of_another_machine_blocks(tmp_path: Path) -> None:
    """It is told before it is deployed."""
    text = (tmp_path / "p.yaml").read_text().replace("dtype: bfloat16", "dtype: float16")
    (tmp_path / "other.yaml").write_text(text.replace("0.5.23", "0.5.1"))
    result = CliRunner().invoke(cli, ["doctor", str(tmp_path / "other.yaml"), "--json"])
    found = [f for f in json.loads(result.stdout)["findings"] if f["subject"] == "profile"]
    assert result.exit_code == 1
    assert [f["level"] for f in found] == ["blocks"]


def test_shipped_profile_is_known_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``serve`` knows it; no repository of that name is asked for."""
    model = write_model(tmp_path / "m")
    monkeypatch.setattr(demo, "model_path", lambda _notify: model)
    monkeypatch.chdir(tmp_path)
    found = {}
    for target in ("demo-cpu", str(shipped.profile_path("demo-cpu"))):
        result = CliRunner().invoke(cli, ["doctor", target, "--device", "cpu", "--json"])
        findings = json.loads(result.stdout)["findings"]
        found[target] = [f["text"] for f in findings if f["subject"] in {"profile", "target"}]
    by_name, by_path = found.values()
    assert by_name == by_path
    assert by_name
