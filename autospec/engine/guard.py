"""Runs one server so that none of its processes outlives whoever started it.

A program of its own, started by file path; it imports nothing of autospec. ``spawn`` and
``kill_orphans`` are what its starter calls. The program

* reads one line of JSON from standard input: ``command``, ``environment``, ``grace_s``;
* starts the command in a session of its own, with its output on standard error;
* writes ``PID`` of the server as one line on standard output;
* ends when the server ends, when standard input is closed (its holder stopped or was killed), or
  on SIGTERM: it terminates the server, waits ``grace_s``, then kills every descendant. A byte on
  standard input skips the terminating;
* exits with the server's exit code, 128 + signal for a signal.

On Linux it is a child subreaper, so processes that left the server's tree come back to it, and the
server dies with it. Elsewhere processes that detach themselves twice may be missed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, cast

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_KILL_S = 30.0
_NO_COMMAND = 127


class Guard:
    """One guarded server."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], grace_s: float
    ) -> None:
        self._grace_s = grace_s
        self._code: int | None = None
        self._asked_to_stop = False
        self._wake = _wake_on(self._on_signal)
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        guard = os.getpid()

        def die_with_guard() -> None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guard:
                os._exit(_NO_COMMAND)

        self._server = subprocess.Popen(  # noqa: S603 -- the command is the caller's whole purpose
            list(command),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
            preexec_fn=die_with_guard,  # noqa: PLW1509 -- this process has one thread
        )
        self.pid = self._server.pid

    def run(self) -> int:
        """Wait for the server's end or the order to stop; returns the exit code."""
        stdin = sys.stdin.fileno()
        while self._reap() is None:
            readable, _, _ = select.select([stdin, self._wake], [], [])
            if self._wake in readable:
                os.read(self._wake, 4096)
            at_once = stdin in readable and bool(os.read(stdin, 1))
            if stdin in readable or self._asked_to_stop:
                if not at_once:
                    self._terminate()
                break
        self._kill_rest()
        code = self._server.returncode = -signal.SIGKILL if self._code is None else self._code
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, _frame: object) -> None:
        self._asked_to_stop = self._asked_to_stop or number == signal.SIGTERM

    def _reap(self) -> int | None:
        """Collect every child that ended, adopted ones too; the server's code once it is known."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == self.pid:
                    self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def _terminate(self) -> None:
        """Ask the server to end, and give it its time."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        while self._reap() is None and time.monotonic() < deadline:
            time.sleep(_POLL_S)

    def _kill_rest(self) -> None:
        """Kill descendants until there are none; a dying one may leave new orphans."""
        me = psutil.Process()
        deadline = time.monotonic() + _KILL_S
        while (rest := me.children(recursive=True)) and time.monotonic() < deadline:
            for process in rest:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            time.sleep(_POLL_S)
            self._reap()


def _wake_on(handler: object) -> int:
    """A descriptor that becomes readable when a child ends or SIGTERM comes."""
    wake, waker = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    # Python handlers, since ignored signals would stay ignored in the server.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handler)  # type: ignore[arg-type]  # a bound method of this shape
    return wake


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def spawn(
    command: Sequence[str], environment: Mapping[str, str], grace_s: float, log: IO[bytes]
) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start a guard; closing its standard input ends the server.

    Args:
        command: the server's.
        environment: variables that the server gets on top of this process's own.
        grace_s: time the server has to end after being asked to.
        log: takes the output of the server.

    Returns:
        The guard, and the server's process id if it could be started.
    """
    order = {"command": list(command), "environment": dict(environment), "grace_s": grace_s}
    guard = subprocess.Popen(  # noqa: S603 -- this interpreter and this file
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
        bufsize=0,
    )
    orders, answers = cast("IO[bytes]", guard.stdin), cast("IO[bytes]", guard.stdout)
    with answers, contextlib.suppress(BrokenPipeError):
        orders.write(json.dumps(order).encode() + b"\n")
        told = answers.readline().strip()
        return guard, int(told) if told else None
    return guard, None


def kill_orphans(session: int | None, variable: str, value: str) -> None:
    """Kill what a killed guard left behind: every process of a session or with a variable."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            same_session = session is not None and os.getsid(process.pid) == session
            if same_session or process.environ().get(variable) == value:
                process.kill()


def main() -> int:
    """Run the command that standard input names."""
    # Byte by byte, so that nothing after the line is taken from the pipe.
    order = json.loads(open(0, "rb", buffering=0, closefd=False).readline())  # noqa: SIM115 -- standard input stays open
    try:
        guard = Guard(order["command"], order["environment"], order["grace_s"])
    except OSError as error:
        sys.stderr.write(f"{order['command'][0]}: {error.strerror}\n")
        return _NO_COMMAND
    sys.stdout.write(f"{guard.pid}\n")
    sys.stdout.flush()
    return guard.run()


if __name__ == "__main__":
    sys.exit(main())
