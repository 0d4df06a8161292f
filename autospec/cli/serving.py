"""Keeps one server in the foreground, its log on standard output."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import click

from autospec.engine.server import ServerProcess
from autospec.tuning.steer import Steered, forget_status, require_steered

__all__ = ["keep_serving"]

_POLL_S = 0.2


def keep_serving(
    arguments: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    steered: Steered,
    port: int,
    log_path: Path | None,
    timeout_s: float,
) -> None:
    """Start a server, say when it is ready, and wait until it ends or the user ends it.

    Raises:
        PortTakenError: the port is in use.
        LaunchError: it did not become ready, or died later.
        EngineError: its policy is not at work.
    """
    with contextlib.ExitStack() as stack:
        if log_path is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="autospec-"))
            log_path = Path(folder) / "server.log"
        stack.enter_context(_terminate_as_interrupt())
        server = ServerProcess(
            arguments,
            environment={**environment, **steered.environment},
            port=port,
            log_path=log_path,
            timeout_s=timeout_s,
        )
        stack.enter_context(_followed(log_path))
        forget_status(port)
        stack.callback(forget_status, port)
        with server:
            if steered.asked is not None:
                status = require_steered(steered, port=server.port, pid=server.pid)
                click.echo(f"plugin: {status.reason}", err=True)
            ready = f"ready after {server.launch_s:.0f} s at {server.url}"
            click.echo(f"{ready}; look on with: autospec watch {server.url}", err=True)
            while server.alive():
                threading.Event().wait(_POLL_S)
            server.check()


@contextlib.contextmanager
def _terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM, which service managers send, end the server as Ctrl-C does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextlib.contextmanager
def _followed(log_path: Path) -> Iterator[None]:
    """Copy a growing file to standard output until the end of the block."""
    ended = threading.Event()

    def follow() -> None:
        while not log_path.exists():
            if ended.wait(_POLL_S):
                return
        with log_path.open("r", encoding="utf-8", errors="replace") as log:
            while True:
                last_look = ended.is_set()
                for line in log:
                    click.echo(line, nl=False)
                if last_look:
                    return
                ended.wait(_POLL_S)

    thread = threading.Thread(target=follow, name="log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(timeout=5)
