"""The examples run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autospec import demo
from autospec.profile import ArgValue, save_profile
from tests.client.helpers import eagle, plain
from tests.report.synthetic import write_study
from tests.test_profile import make_profile

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str, *arguments: str) -> str:
    """Run an example; gives its standard output."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_inspect_profile(tmp_path: Path) -> None:
    """It says the verdict, the evidence and the flags."""
    save_profile(tmp_path / "p.yaml", make_profile())
    shown = run("inspect_profile.py", str(tmp_path / "p.yaml"))
    assert "faster: it is" in shown
    assert "confirm, concurrency 1: 1.40x (1.30 to 1.50)" in shown
    assert "--speculative-algorithm NGRAM" in shown


@pytest.mark.engine
def test_offline_engine(tmp_path: Path) -> None:
    """A profile's settings start ``sglang.Engine``, which answers."""
    arguments: dict[str, ArgValue] = {
        "model_path": str(demo.model_path()),
        "device": "cpu",
        "max_running_requests": 48,
        "mem_fraction_static": 0.2,
        "speculative_algorithm": "NGRAM",
        "speculative_num_draft_tokens": 4,
    }
    base = make_profile()
    profile = replace(
        base,
        environment=replace(base.environment, device="cpu"),
        choice=replace(base.choice, server_args=arguments),
    )
    save_profile(tmp_path / "p.yaml", profile)
    assert run("offline_engine.py", str(tmp_path / "p.yaml"), "The capital of France is").strip()


def test_policy_hook() -> None:
    """It shows the accept length of each answer and that its own policy is at work."""
    with eagle() as server:
        shown = run("policy_hook.py", server.url, "--requests", "6")
    assert shown.count("tokens a step") == 6
    assert "plain: 5 answers seen" in shown


def test_two_servers() -> None:
    """The openai package's answers, from the speculative server and from the plain one."""
    with eagle() as one, plain() as other:
        shown = run("two_servers.py", one.url, other.url, "--requests", "4")
        assert "4 from the speculative server, 0 from the plain one" in shown
        one.server.faults["http500"] = "1"
        shown = run("two_servers.py", one.url, other.url, "--requests", "4")
    assert "0 from the speculative server, 4 from the plain one" in shown


def test_replay_trace() -> None:
    """Every policy has its line, and the engine's own rule does not win."""
    lines = run("replay_trace.py").splitlines()
    assert [line.split()[1] for line in lines] == ["off", "fixed", "sglang-adaptive", "throughput"]
    assert all(line.startswith("simulated") for line in lines)
    made = {line.split()[1]: float(line.split()[2].rstrip("x")) for line in lines}
    assert made["off"] == 1
    assert made["throughput"] == max(made.values())


def test_custom_policy() -> None:
    """A class of the user's own runs like a shipped kind."""
    assert run("custom_policy.py").startswith("simulated: ")


def test_read_study(tmp_path: Path) -> None:
    """States are counted, and the best configurations stand with their loads."""
    write_study(tmp_path / "study", 26)
    shown = run("read_study.py", str(tmp_path / "study"))
    assert "complete    25" in shown
    assert "failed       1" in shown
    assert len([line for line in shown.splitlines() if "tokens=" in line]) == 5


def test_examples_are_short() -> None:
    """Each fits on a screen or two."""
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name


def test_every_example_is_tested() -> None:
    """A new example needs a test here."""
    source = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in source
