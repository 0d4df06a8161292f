"""What a running server says of itself, read once an interval."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autospec.config import SpecConfig
from autospec.control.status import PluginStatus, read_status
from autospec.engine.args import config_of
from autospec.engine.client import EngineClient
from autospec.engine.live import Loads, read_decode_tokens
from autospec.engine.wire import ServerInfo
from autospec.errors import ConfigError, EngineError, RequestError, SchemaError, WireError
from autospec.watch.page import read_plugin_page

__all__ = ["Reader", "Reading", "Server"]

#: Readings after which the server is asked anew what it is.
_ASK_EVERY: Final = 10
_REFUSED_KEY: Final = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class Server:
    """What a server is.

    Attributes:
        version: SGLang's.
        model: of its target.
        config: how it was started to decode.
        max_running_requests: its admission limit.
        num_steps: drafting depth at this moment, where it names one.
        adaptive: whether SGLang's own rule changes the depth.
        metrics: whether it has a Prometheus page.
    """

    version: str
    model: str
    config: SpecConfig
    max_running_requests: int
    num_steps: int | None = None
    adaptive: bool = False
    metrics: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """A server at one moment.

    Attributes:
        time_s: on a clock that never goes back.
        server: what it is.
        loads: what it does.
        decode_tokens: tokens that its decode steps ever made; None without a Prometheus page.
        status: what autospec's plugin in it says, if it has one that can be read.
        notes: what could not be read, a line each.
    """

    time_s: float
    server: Server
    loads: Loads
    decode_tokens: float | None = None
    status: PluginStatus | None = None
    notes: tuple[str, ...] = ()


class Reader:
    """Reads one server, again and again."""

    def __init__(
        self, client: EngineClient, url: str, status_file: Path | None, *, must_exist: bool = False
    ) -> None:
        """Set up; nothing is sent yet.

        Args:
            client: open while reading.
            url: the server's, for messages.
            status_file: where autospec's plugin in it writes, if that is known.
            must_exist: whether the user named that file, so that its absence is to be told.
        """
        self._client = client
        self._url = url
        self._status_file = status_file
        self._must_exist = must_exist
        self._server: Server | None = None
        self._readings = 0
        self._steps = 0

    async def read(self) -> Reading:
        """Ask the server.

        Raises:
            RequestError: it cannot be reached or is too slow.
            WireError: what answers is not the supported version of SGLang.
            EngineError: it asks for a key.
        """
        try:
            return await self._read()
        except WireError as error:
            self.forget()
            raise WireError(
                f"{self._url}: is no SGLang server that can be watched: {error}"
            ) from error
        except RequestError as error:
            self.forget()
            if error.status in _REFUSED_KEY:
                raise EngineError(
                    f"{self._url}: asks for an API key; put it into the environment variable that "
                    "--api-key-env names"
                ) from error
            if error.status == 404:
                raise WireError(f"{self._url}: is no SGLang server: {error}") from error
            raise

    def forget(self) -> None:
        """Take whatever answers next for another server."""
        self._server = None
        self._readings = self._steps = 0

    async def _read(self) -> Reading:
        loads = await self._client.loads()
        steps = loads.moments.num_steps if loads.moments else 0
        if steps < self._steps:
            self.forget()
        self._steps = steps
        server = self._server
        if server is None or server.adaptive or self._readings % _ASK_EVERY == 0:
            server = self._server = _server(await self._client.server_info())
        self._readings += 1
        page, notes = await self._page() if server.metrics else ("", ())
        status, further = self._status()
        return Reading(
            time.monotonic(),
            server,
            loads,
            decode_tokens=read_decode_tokens(page),
            status=status or read_plugin_page(page),
            notes=(*notes, *further),
        )

    async def _page(self) -> tuple[str, tuple[str, ...]]:
        """The Prometheus page; a server is not gone for want of it."""
        try:
            return await self._client.metrics(), ()
        except RequestError as error:
            return "", (str(error),)

    def _status(self) -> tuple[PluginStatus | None, tuple[str, ...]]:
        path = self._status_file
        if path is None or not (self._must_exist or path.exists()):
            return None, ()
        try:
            status = read_status(path)
        except SchemaError as error:
            return None, (str(error),)
        if self._must_exist or _alive(status.pid):
            return status, ()
        return None, ()


def _server(info: ServerInfo) -> Server:
    try:
        config = config_of(info.resolved)
    except ConfigError as error:
        raise WireError(f"its speculative settings make no sense: {error}") from error
    return Server(
        version=info.version,
        model=str(info.resolved.get("model_path")),
        config=config,
        max_running_requests=info.max_running_requests,
        num_steps=info.num_steps if config.num_steps is not None else None,
        adaptive=bool(info.resolved.get("speculative_adaptive")),
        metrics=bool(info.resolved.get("enable_metrics")),
    )


def _alive(pid: int) -> bool:
    """Whether a process is there; a file outlives a server that was killed."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
