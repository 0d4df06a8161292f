"""No process of a server outlives its guard or whoever started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from autospec.engine import guard

MARK = "AUTOSPEC_TEST_TREE"
LIMIT_S = 20.0

#: A server whose grandchild leaves its session and ignores everything that can be ignored.
TREE = """
import os, signal, subprocess, sys, time
def stubborn():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
role, folder, *options = sys.argv[1:]
if role == "server":
    subprocess.Popen([sys.executable, __file__, "child", folder], start_new_session=True)
    if "stubborn" in options:
        stubborn()
    while not os.path.exists(os.path.join(folder, "grandchild")):
        time.sleep(0.01)
    open(os.path.join(folder, "server"), "w").write(str(os.getpid()))
    if "crash" in options:
        sys.exit(7)
    if "killed" in options:
        os.kill(os.getpid(), signal.SIGKILL)
elif role == "child":
    # Ends at once, so that its own child loses its parent.
    subprocess.Popen([sys.executable, __file__, "grandchild", folder], start_new_session=True)
    sys.exit()
else:
    stubborn()
    open(os.path.join(folder, "grandchild"), "w").write(str(os.getpid()))
time.sleep(600)
"""

#: A program that starts a guarded server and then waits, as autospec does.
HOLDER = """
import sys, time
from autospec.engine import guard
mark, *command = sys.argv[1:]
started = guard.spawn(command, {"AUTOSPEC_TEST_TREE": mark}, 0.3, sys.stderr.buffer)
time.sleep(600)
"""


def tree(mark: str) -> list[psutil.Process]:
    """Every living process of one test's server."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.environ().get(MARK) == mark:
                found.append(process)
    return found


def wait_for(condition: Callable[[], Any], what: str) -> None:
    """Wait until a condition holds, at most ``LIMIT_S``."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {LIMIT_S} s"
        time.sleep(0.02)


class Story:
    """One guarded tree in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"{os.getpid()}-{folder.name}"
        self.guard: subprocess.Popen[bytes] | None = None
        (folder / "tree.py").write_text(TREE)

    def command(self, *options: str) -> list[str]:
        """What runs the tree."""
        script = str(self.folder / "tree.py")
        return [sys.executable, script, "server", str(self.folder), *options]

    def start(self, *options: str, grace_s: float = 5.0) -> subprocess.Popen[bytes]:
        """Start the tree under a guard and wait until all of it is there."""
        with (self.folder / "log").open("wb") as log:
            command = self.command(*options)
            started, pid = guard.spawn(command, {MARK: self.mark}, grace_s, log)
        self.guard = started
        self.wait_until_up()
        assert pid == int((self.folder / "server").read_text())
        return started

    def wait_until_up(self) -> None:
        """Wait until the server has written its mark."""
        server = self.folder / "server"
        wait_for(lambda: server.exists() and server.read_text(), "the tree's start")

    def grandchild(self) -> psutil.Process:
        """The process that tries to get away."""
        return psutil.Process(int((self.folder / "grandchild").read_text()))

    def end(self, started: subprocess.Popen[bytes], *, kill: bool = False) -> int:
        """Close or signal the guard's input and wait for its exit code."""
        assert started.stdin is not None
        if kill and not started.stdin.closed:
            started.stdin.write(b"k")
        started.stdin.close()
        return started.wait(LIMIT_S)


@pytest.fixture
def story(tmp_path: Path) -> Iterator[Story]:
    """A guarded tree; whatever a failing test leaves behind is killed."""
    it = Story(tmp_path)
    yield it
    if it.guard is not None and it.guard.poll() is None:
        it.end(it.guard, kill=True)
    for process in tree(it.mark):
        process.kill()


def test_a_closed_pipe_ends_the_whole_tree(story: Story) -> None:
    """The server is terminated, and what ignores that and left its session is killed."""
    started = story.start()
    assert len(tree(story.mark)) == 2
    assert story.end(started) == 128 + signal.SIGTERM
    assert tree(story.mark) == []


def test_a_server_that_ignores_termination_is_killed_after_its_grace(story: Story) -> None:
    """A server that does not end when asked is killed."""
    started = story.start("stubborn", grace_s=0.3)
    assert story.end(started) == 128 + signal.SIGKILL
    assert tree(story.mark) == []


def test_a_byte_kills_without_waiting(story: Story) -> None:
    """With an hour of grace, the order to kill still ends a stubborn server now."""
    started = story.start("stubborn", grace_s=3600)
    assert story.end(started, kill=True) == 128 + signal.SIGKILL
    assert tree(story.mark) == []


@pytest.mark.parametrize(("how", "code"), [("crash", 7), ("killed", 128 + signal.SIGKILL)])
def test_a_server_that_ends_by_itself_takes_its_tree_along(
    story: Story, how: str, code: int
) -> None:
    """The guard passes the exit code on and leaves nothing."""
    started = story.start(how)
    assert started.wait(LIMIT_S) == code
    assert tree(story.mark) == []
    assert started.stdin is not None
    started.stdin.close()


def test_sigterm_to_the_guard_ends_the_tree(story: Story) -> None:
    """A guard that is asked to end does what a closed pipe does."""
    started = story.start()
    started.terminate()
    assert started.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert tree(story.mark) == []
    story.end(started)


def test_an_interrupt_reaches_neither_guard_nor_server(story: Story) -> None:
    """Both are in sessions of their own, and the guard shrugs a stray interrupt off."""
    started = story.start()
    server = int((story.folder / "server").read_text())
    assert len({os.getsid(0), os.getsid(started.pid), os.getsid(server)}) == 3
    started.send_signal(signal.SIGINT)
    started.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert started.poll() is None
    assert psutil.pid_exists(server)
    story.end(started)


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's parent-death signal")
def test_a_killed_guard_takes_the_server_along_and_orphans_can_be_found(story: Story) -> None:
    """The kernel kills the server with its guard; the rest is found by session or variable."""
    started = story.start()
    server = psutil.Process(int((story.folder / "server").read_text()))
    started.kill()
    started.wait(LIMIT_S)
    wait_for(lambda: not _alive(server), "the server's death")
    assert [process.pid for process in tree(story.mark)] == [story.grandchild().pid]
    guard.kill_orphans(server.pid, MARK, story.mark)
    wait_for(lambda: tree(story.mark) == [], "the orphan's death")
    story.end(started)


def test_a_killed_starter_leaves_nothing(story: Story) -> None:
    """When the process that started the guard is killed with SIGKILL, the tree is gone too."""
    command = [sys.executable, "-c", HOLDER, story.mark, *story.command("stubborn")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as holder:
        story.wait_until_up()
        assert len(tree(story.mark)) == 2
        holder.kill()
        wait_for(lambda: tree(story.mark) == [], "the tree's end")


def test_a_command_that_does_not_exist_is_told_in_the_log(tmp_path: Path) -> None:
    """No process id comes back, and the log names the command."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        started, pid = guard.spawn(["/no/such/server"], {}, 1, file)
    assert started.wait(LIMIT_S) == 127
    assert pid is None
    assert log.read_text() == "/no/such/server: No such file or directory\n"
    assert started.stdin is not None
    started.stdin.close()


def test_the_server_gets_its_environment_and_no_input(tmp_path: Path) -> None:
    """Variables are added to the starter's own, and reading input finds its end."""
    log = tmp_path / "log"
    code = "import os, sys; print(os.environ['NEW'], 'PATH' in os.environ, sys.stdin.read() == '')"
    with log.open("wb") as file:
        started, _ = guard.spawn([sys.executable, "-c", code], {"NEW": "here"}, 1, file)
    assert started.wait(LIMIT_S) == 0
    assert log.read_text() == "here True True\n"
    assert started.stdin is not None
    started.stdin.close()


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False
