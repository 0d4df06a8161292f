"""Servers that take turns, with processes that only sleep."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest


@pytest.fixture(scope="module")
def turns() -> ModuleType:
    """The module, which is in no package."""
    path = Path(__file__).parents[2] / "benchmarks" / "turns.py"
    spec = importlib.util.spec_from_file_location("turns", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that would sleep for a minute."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as made:
        yield made
        made.kill()


def test_server_sleeps_but_for_its_turn_and_its_end(
    turns: ModuleType, process: subprocess.Popen[bytes]
) -> None:
    """Suspended outside its turns; awake when it is to be stopped."""
    server, seen = SimpleNamespace(pid=process.pid), psutil.Process(process.pid)
    with turns.asleep(server):
        assert becomes(seen, stopped=True)
        with turns.awake(server):
            assert becomes(seen, stopped=False)
        assert becomes(seen, stopped=True)
    assert becomes(seen, stopped=False)


def becomes(process: psutil.Process, *, stopped: bool) -> bool:
    """Whether a process is stopped, or runs, before ten seconds are over: signals take a while."""
    until = time.monotonic() + 10
    while (process.status() == psutil.STATUS_STOPPED) is not stopped:
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def test_server_that_ended_disturbs_nobody(
    turns: ModuleType, process: subprocess.Popen[bytes]
) -> None:
    """Whoever talks to it will notice; its turn and its end are no errors."""
    server = SimpleNamespace(pid=process.pid)
    with turns.asleep(server):
        with turns.awake(server):
            process.kill()
            process.wait()
        with turns.awake(server):
            pass
