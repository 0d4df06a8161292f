"""One SGLang server as a context manager: started, ready, and gone with everything it started."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Any, Final, Self

import psutil

from autospec.argv import to_argv
from autospec.engine import failures, guard, wire
from autospec.engine.ports import choose_port
from autospec.errors import (
    EngineError,
    EngineMissingError,
    LaunchError,
    LaunchTimeoutError,
    OutOfMemoryError,
    PortTakenError,
    ServerDiedError,
    StorageError,
)

__all__ = ["LAUNCH_COMMAND", "MARK", "ServerProcess"]

#: What starts SGLang; the flags follow.
LAUNCH_COMMAND: Final = (sys.executable, "-m", "sglang.launch_server")

#: Every process of a server carries this variable, as long as it keeps its environment.
MARK: Final = "AUTOSPEC_SERVER"
_SECRET_ARGS: Final = ("api_key", "admin_api_key", "ssl_keyfile_password")
_LOG_READ: Final = 256 * 1024
_POLL_S: Final = 0.5
_PORTS_TRIED: Final = 3
#: A fatal line is not the last one of a failing server; what follows tells why.
_FATAL_SETTLE_S: Final = 0.5
#: What stopping may take beyond the grace time before the guard itself is given up.
_GUARD_S: Final = 40.0
#: What a killed guard takes to be gone, at most.
_REAP_S: Final = 5.0


class ServerProcess:
    """A server under a guard process that outlives neither it nor this process.

    Use it as a context manager; ``stop`` is safe to call at any time and more than once.

    Args:
        args: SGLang's settings by name, as ``argv.to_argv`` takes them.
        environment: variables that the server gets on top of this process's own.
        log_path: file for the server's output, readable by its owner only; begun anew.
        port: loopback port; None takes a free one.
        timeout_s: time allowed until it is ready.
        grace_s: time allowed to end after being asked to, before it is killed.
        command: what to run before the flags.

    Attributes:
        port: the port in use, 0 before ``start``.
        launch_s: time from ``start`` to readiness, None before.
    """

    def __init__(
        self,
        args: Mapping[str, Any],
        *,
        environment: Mapping[str, str] = MappingProxyType({}),
        log_path: Path,
        port: int | None = None,
        timeout_s: float = 600.0,
        grace_s: float = 20.0,
        command: Sequence[str] = LAUNCH_COMMAND,
    ) -> None:
        given = args.get("port") if port is None else port
        self._given_port = None if given is None else int(given)
        self._host = str(args.get("host") or "127.0.0.1")
        self._args = dict(args)
        self._mark = secrets.token_hex(8)
        # SGLang calls ninja, which pip puts beside the interpreter of an environment.
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        self._environment = {"PATH": path, **environment, MARK: self._mark}
        self._command = tuple(command)
        self._guard: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._stopped = False
        self.log_path = log_path
        self.timeout_s = timeout_s
        self.grace_s = grace_s
        self.port = 0
        self.launch_s: float | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers."""
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{self.port}"

    @property
    def pid(self) -> int:
        """Process id of the server itself.

        Raises:
            EngineError: it was not started.
        """
        if self._pid is None:
            raise EngineError("the server has no process id: it was not started")
        return self._pid

    def start(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            PortTakenError: the port asked for is in use, or each of three free ones was taken.
            EngineMissingError: SGLang is not installed.
            LaunchError: it failed, ran out of memory or time; with the end of its log.
            StorageError: the log cannot be written.
        """
        if self.alive():
            raise EngineError(f"the server on port {self.port} is running already")
        self.launch_s = None
        began = time.monotonic()
        for left in range(_PORTS_TRIED - 1, -1, -1):
            try:
                self._launch(began + self.timeout_s)
                break
            except PortTakenError:
                # Between the choice and the listening another process was quicker.
                if self._given_port is not None or not left:
                    raise
        self.launch_s = time.monotonic() - began

    def stop(self, *, at_once: bool = False) -> None:
        """End the server and everything it started.

        Args:
            at_once: kill without asking and waiting first.
        """
        self._stopped = True
        guard_process = self._guard
        if guard_process is None or guard_process.stdin is None:
            return
        if at_once and not guard_process.stdin.closed:
            with contextlib.suppress(OSError):
                guard_process.stdin.write(b"k")
        with contextlib.suppress(OSError):
            guard_process.stdin.close()
        try:
            code = guard_process.wait(self.grace_s + _GUARD_S)
        except subprocess.TimeoutExpired:
            guard_process.kill()
            code = -signal.SIGKILL
            with contextlib.suppress(subprocess.TimeoutExpired):
                guard_process.wait(_REAP_S)
        if code < 0:
            guard.kill_orphans(self._pid, MARK, self._mark)

    def alive(self) -> bool:
        """Whether the server's process runs."""
        return self._guard is not None and _runs(self._guard)

    def check(self) -> None:
        """Raise if the server went away by itself, or is about to.

        Raises:
            ServerDiedError: with the cause found in its log and the log's end.
        """
        if self._guard is None or self._stopped:
            return
        log = self._read_log()
        if self.alive() and not failures.is_fatal(log):
            return
        failure = failures.diagnose(log, self._guard.poll())
        raise ServerDiedError(f"the server died: {failure.cause}", log_tail=self.log_tail())

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the server's output, secrets masked."""
        return "\n".join(self._read_log().splitlines()[-lines:])

    @property
    def _address(self) -> str:
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)  # noqa: S104 -- named to connect elsewhere

    def _launch(self, deadline: float) -> None:
        self.port = choose_port(self._host, self._given_port)
        self._stopped = False
        try:
            self._spawn()
            self._wait_until_ready(deadline)
        except BaseException:
            self.stop(at_once=True)
            raise

    def _spawn(self) -> None:
        flags = to_argv({**self._args, "host": self._host, "port": self.port})
        command = [*self._command, *flags]
        with self._open_log() as log:
            self._guard, self._pid = guard.spawn(command, self._environment, self.grace_s, log)

    def _open_log(self) -> IO[bytes]:
        try:
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        except OSError as error:
            raise StorageError(f"{self.log_path}: cannot be written ({error.strerror})") from error
        return os.fdopen(handle, "wb")

    def _wait_until_ready(self, deadline: float) -> None:
        for pause in _pauses():
            if not self.alive():
                raise self._failure()
            if failures.is_fatal(self._read_log()):
                time.sleep(_FATAL_SETTLE_S)
                raise self._failure()
            if self._says_ready():
                if self.alive() and self._is_ours():
                    return
                raise PortTakenError(f"port {self.port} is answered by another server")
            if time.monotonic() > deadline:
                last = self.log_tail(1) or "(empty)"
                raise LaunchTimeoutError(
                    f"the server was not ready after {self.timeout_s:g} s; last line: {last}",
                    log_tail=self.log_tail(),
                )
            time.sleep(pause)

    def _says_ready(self) -> bool:
        # Unlike the health checks this makes the server generate nothing.
        connection = http.client.HTTPConnection(self._address, self.port, timeout=5)
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            connection.request("GET", wire.READY)
            return connection.getresponse().status == http.client.OK
        return False

    def _is_ours(self) -> bool:
        """Whether a process of this server listens on the port; a stale server would answer too."""
        ports: set[int] = set()
        with contextlib.suppress(psutil.Error):
            server = psutil.Process(self.pid)
            for process in [server, *server.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    ports |= {
                        connection.laddr.port
                        for connection in process.net_connections("tcp")
                        if connection.status == psutil.CONN_LISTEN
                    }
        return self.port in ports

    def _failure(self) -> EngineError:
        code = self._guard.poll() if self._guard is not None else None
        failure = failures.diagnose(self._read_log(), code)
        if failure.kind is failures.Kind.NOT_INSTALLED:
            return EngineMissingError(f"{failure.cause}; install sglang-autospec[sglang]")
        if failure.kind is failures.Kind.PORT_TAKEN:
            return PortTakenError(failure.cause)
        oom = failure.kind is failures.Kind.OUT_OF_MEMORY
        kind = OutOfMemoryError if oom else LaunchError
        return kind(f"the server did not start: {failure.cause}", log_tail=self.log_tail())

    def _read_log(self) -> str:
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_READ))
                text = log.read().decode("utf-8", "replace")
        except OSError:
            return ""
        for secret in (str(self._args.get(name) or "") for name in _SECRET_ARGS):
            text = text.replace(secret, "***") if secret else text
        return text


def _runs(child: subprocess.Popen[bytes]) -> bool:
    """Whether a child runs. Asked often, so not by its ``poll``.

    That takes a lock which it never gives back where Ctrl-C comes between two of its lines, and
    whoever waits for the child then waits for ever.
    """
    if child.returncode is not None:
        return False
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except ChildProcessError:
        return False


def _pauses() -> Iterator[float]:
    """Time between two looks at a starting server, in s: often at first."""
    pause = 0.05
    while True:
        yield pause
        pause = min(pause * 1.5, _POLL_S)
