"""A user's command that runs on an event, and that can do watching no harm."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
from collections.abc import Callable
from typing import Final, Self

from autospec import schema
from autospec.errors import InputError
from autospec.watch.view import Event

__all__ = ["RUNS_ON", "TIMEOUT_S", "Hook", "split_command"]

#: Events that it runs on.
RUNS_ON: Final = frozenset({"fallback", "drift"})
#: How long one run may take.
TIMEOUT_S: Final = 30.0
#: Events that may wait for the one at work.
_MOST_WAITING: Final = 16


def split_command(text: str) -> list[str]:
    """A command as an argument list; no shell reads it.

    Raises:
        InputError: its quotes do not match, it is empty, or there is no such program.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InputError(f"--exec {text!r} cannot be read: {error}") from error
    if not words:
        raise InputError("--exec is empty, must be a program with its arguments")
    if shutil.which(words[0]) is None:
        raise InputError(f"--exec: there is no program {words[0]!r}")
    return words


class Hook:
    """Runs one command, an event at a time; use it in ``async with``.

    The event comes as one JSON object on standard input, its kind in ``AUTOSPEC_EVENT`` and its
    address in ``AUTOSPEC_URL``. What the command writes is dropped. A run that takes too long, or
    that is still at work in the end, is ended with all that it started.
    """

    def __init__(
        self,
        words: list[str],
        url: str,
        tell: Callable[[str], None],
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Set up; nothing runs yet.

        Args:
            words: the program and its arguments.
            url: of the server that is watched.
            tell: told what came of each run.
            timeout_s: how long one may take.
        """
        self._words = words
        self._url = url
        self._tell = tell
        self._timeout_s = timeout_s
        self._waiting: asyncio.Queue[Event] = asyncio.Queue(_MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def submit(self, event: Event) -> None:
        """Run the command on an event, once those before it are done."""
        if event.kind not in RUNS_ON:
            return
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._tell(f"not run on {event.kind}: {_MOST_WAITING} events wait already")

    async def drain(self) -> None:
        """Wait until every event that was submitted is done with."""
        await self._waiting.join()

    async def _work(self) -> None:
        while True:
            event = await self._waiting.get()
            try:
                self._tell(f"on {event.kind}: {await self._run(event)}")
            finally:
                self._waiting.task_done()

    async def _run(self, event: Event) -> str:
        devnull = asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=devnull,
                stderr=devnull,
                env={**os.environ, "AUTOSPEC_EVENT": event.kind, "AUTOSPEC_URL": self._url},
                # A group of its own: it can be ended whole, and Ctrl-C here does not reach it.
                start_new_session=True,
            )
        except OSError as error:
            return f"could not be started ({error.strerror})"
        text = json.dumps({"url": self._url, **schema.dump(event)})
        try:
            async with asyncio.timeout(self._timeout_s):
                await process.communicate(text.encode())
        except TimeoutError:
            return f"ended after {self._timeout_s:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return "done" if process.returncode == 0 else f"exit code {process.returncode}"
