"""Servers that take turns: all of them run, but all of them but one are always suspended.

What is compared is then measured side by side, so that a machine that slows down slows all of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil

from autospec.engine.server import ServerProcess


@contextlib.contextmanager
def awake(server: ServerProcess) -> Iterator[None]:
    """Let one server run for a while; it is suspended before and after."""
    family = _family(server)
    for process in family:
        process.resume()
    try:
        yield
    finally:
        for process in family:
            process.suspend()


def _family(server: ServerProcess) -> list[psutil.Process]:
    first = psutil.Process(server.pid)
    return [first, *first.children(recursive=True)]


@contextlib.contextmanager
def asleep(server: ServerProcess) -> Iterator[ServerProcess]:
    """A server suspended until it is woken, and awake for its end."""
    for process in _family(server):
        process.suspend()
    try:
        yield server
    finally:
        for process in _family(server):
            process.resume()
