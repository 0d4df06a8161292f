"""Servers that take turns: all of them run, but all of them but one are always suspended.

What is compared is then measured side by side, so that a machine that slows down slows all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psutil

from autospec.engine.server import ServerProcess


@contextlib.contextmanager
def asleep(server: ServerProcess) -> Iterator[ServerProcess]:
    """A server suspended until it is woken, and awake for its end."""
    _each(server, psutil.Process.suspend)
    try:
        yield server
    finally:
        _each(server, psutil.Process.resume)


@contextlib.contextmanager
def awake(server: ServerProcess) -> Iterator[None]:
    """Let one server run for a while; it is suspended before and after."""
    _each(server, psutil.Process.resume)
    try:
        yield
    finally:
        _each(server, psutil.Process.suspend)


def _each(server: ServerProcess, act: Callable[[psutil.Process], None]) -> None:
    """Act on all processes of a server that are left: one that ended is its client's to notice."""
    try:
        first = psutil.Process(server.pid)
        family = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            act(process)
