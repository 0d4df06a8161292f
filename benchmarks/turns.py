"""Servers that take turns: all of them run, but all of them but one are always suspended.

What is compared is then measured side by side, so that a machine that slows down slows all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import psutil

from autospec.engine.server import ServerProcess

#: Length of a turn in s: short beside the minutes in which a shared machine's speed comes and goes,
#: long beside the one decode step of each turn that is cut in two.
TURN_S: Final = 3.0


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


async def in_turns(
    servers: Mapping[str, ServerProcess], work: Mapping[str, Callable[[], Awaitable[None]]]
) -> dict[str, float]:
    """Have each server do its work, in turns of ``TURN_S``; they are suspended before and after.

    In an order that is drawn anew each time round: what disturbs a machine may come at the pace of
    the turns.

    Returns:
        By name, the time in s that each was awake until its work was done.
    """
    tasks = {name: asyncio.ensure_future(begin()) for name, begin in work.items()}
    spent_s = dict.fromkeys(tasks, 0.0)
    drawn = random.Random(0)  # noqa: S311  # an order, no secret
    waiting = list(tasks)
    try:
        while waiting:
            drawn.shuffle(waiting)
            for name in list(waiting):
                with awake(servers[name]):
                    began = time.perf_counter()
                    done, _ = await asyncio.wait({tasks[name]}, timeout=TURN_S)
                    spent_s[name] += time.perf_counter() - began
                if done:
                    await tasks[name]
                    waiting.remove(name)
    finally:
        for task in tasks.values():
            task.cancel()
    return spent_s


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
