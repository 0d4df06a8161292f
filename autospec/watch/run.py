"""Watching: a reading an interval, whatever the server does."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from autospec.control.status import status_path
from autospec.engine.address import local_port
from autospec.engine.client import EngineClient
from autospec.errors import EngineError, RequestError
from autospec.watch.hook import Hook
from autospec.watch.known import Known
from autospec.watch.reading import Reader
from autospec.watch.view import View
from autospec.watch.watcher import Watcher

__all__ = ["Watching", "watch", "watch_once"]

#: How long the server may take to say how it is.
_TIMEOUT_S: Final = 10.0
#: Intervals that one look takes at most.
_MOST_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class Watching:
    """What the user asked for.

    Attributes:
        url: the server's address.
        api_key: what it asks for; shown nowhere.
        interval_s: time between two readings.
        known: what its profile says, if there is one.
        status_file: where autospec's plugin in it writes; None to look where it does by default.
        command: what to run on a fallback or a drift alarm, as an argument list.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    interval_s: float = 2.0
    known: Known | None = None
    status_file: Path | None = None
    command: list[str] | None = None

    def reader(self, client: EngineClient) -> Reader:
        """What reads the server."""
        port = local_port(self.url)
        default = None if port is None else status_path(port)
        named = self.status_file
        return Reader(client, self.url, named or default, must_exist=named is not None)

    def client(self) -> EngineClient:
        """A session with the server."""
        return EngineClient(
            self.url, api_key=self.api_key, timeout_s=_TIMEOUT_S, stall_timeout_s=_TIMEOUT_S
        )


async def watch_once(asked: Watching) -> View:
    """The server now: two readings, an interval apart.

    While requests run and no step is to be seen, a few more: SGLang publishes its counts only after
    several steps.

    Raises:
        EngineError: it does not answer, asks for a key, or is no SGLang server.
    """
    watcher = Watcher(asked.url, asked.known)
    async with asked.client() as client:
        reader = asked.reader(client)
        try:
            view = watcher.see(await reader.read(), datetime.now(UTC))
            for _ in range(_MOST_LOOKS):
                await asyncio.sleep(asked.interval_s)
                view = watcher.see(await reader.read(), datetime.now(UTC))
                if view.window is not None or not view.running:
                    break
        except RequestError as error:
            raise RequestError(f"{asked.url}: {error}", status=error.status) from error
    return view


async def watch(asked: Watching) -> AsyncGenerator[View]:
    """The server again and again, for ever; a server that does not answer is asked again.

    Raises:
        EngineError: at the first answer: it asks for a key, or is no SGLang server.
    """
    watcher = Watcher(asked.url, asked.known)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(asked.client())
        reader = asked.reader(client)
        hook = None
        if asked.command is not None:

            def tell(text: str) -> None:
                watcher.tell(text, datetime.now(UTC))

            hook = await stack.enter_async_context(Hook(asked.command, asked.url, tell))
        answered = False
        while True:
            try:
                view = watcher.see(await reader.read(), datetime.now(UTC))
                answered = True
            except EngineError as error:
                silent = isinstance(error, RequestError)
                if not answered and not silent:
                    raise
                view = watcher.lost(str(error), datetime.now(UTC))
            for event in watcher.new:
                if hook is not None:
                    hook.submit(event)
            yield view
            await asyncio.sleep(asked.interval_s)
