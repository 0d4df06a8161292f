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


def test_every_example_is_tested() -> None:
    """A new example needs a test here."""
    source = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in source
