"""The asynchronous transport: the same as ``transport``, within one event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import anyio
import httpx

from autospec.client.core import Core, Reading, is_stream, with_read_timeout
from autospec.client.exchange import Exchange
from autospec.engine.answers import stream_error

__all__ = ["AsyncRoutingTransport"]


class AsyncRoutingTransport(httpx.AsyncBaseTransport):
    """Routes requests to the speculative server's address; passes others on as they are."""

    def __init__(self, inner: httpx.AsyncBaseTransport, core: Core) -> None:
        self._inner = inner
        self._core = core

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its answer is untouched."""
        exchange, body = self._core.begin(request)
        if exchange is None:
            return await self._inner.handle_async_request(request)
        try:
            while True:
                if exchange.look:
                    await self._look(exchange)
                try:
                    response = await self._attempt(request, exchange, body)
                except httpx.TransportError as error:
                    final = self._core.failed(exchange, error)
                    if final is not None:
                        raise final from error
                else:
                    if response is not None:
                        return response
        except BaseException as error:
            failed = isinstance(error, httpx.TransportError)
            self._core.router.given_up(exchange, failed=failed)
            raise

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _look(self, exchange: Exchange) -> None:
        """Find out whether a server that was down is back."""
        try:
            response = await self._inner.handle_async_request(self._core.health(exchange))
            stream = cast("httpx.AsyncByteStream", response.stream)
            try:
                async for _ in stream:
                    pass
            finally:
                await stream.aclose()
            alive = response.status_code < 500
        except httpx.TransportError:
            alive = False
        self._core.router.looked(exchange, alive=alive)

    async def _attempt(
        self, request: httpx.Request, exchange: Exchange, body: bytes | None
    ) -> httpx.Response | None:
        """Ask one server; None if it failed and another one is to be asked."""
        core = self._core
        sending, limit_s = core.send(request, exchange, body)
        timeouts = None if limit_s is None else with_read_timeout(sending.request, limit_s)
        begun_s = core.router.clock()
        try:
            response = await self._inner.handle_async_request(sending.request)
        finally:
            if timeouts is not None:
                timeouts["read"] = timeouts["body"]
        stream = cast("httpx.AsyncByteStream", response.stream)
        if not is_stream(response):
            try:
                content = b"".join([piece async for piece in stream])
            finally:
                await stream.aclose()
            if core.refused(exchange, response.status_code):
                return None
            core.whole(exchange, sending, response, content)
            return response
        rest_s = None if limit_s is None else max(limit_s - core.router.clock() + begun_s, 0.0)
        pieces = aiter(stream)
        try:
            first = await _first(pieces, rest_s)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await stream.aclose()
            raise
        if core.refused(exchange, stream_error(first)):
            await stream.aclose()
            return None
        core.router.heard(exchange)
        core.deliver(exchange, response)
        reading = Reading(sending, exchange)
        response.stream = _Answer(
            core, exchange, reading, stream=stream, first=first, pieces=pieces
        )
        return response


async def _first(pieces: AsyncIterator[bytes], limit_s: float | None) -> bytes:
    """The first piece of a stream, empty if there is none.

    Raises:
        httpx.ReadTimeout: it took too long.
    """
    if limit_s is None:
        return await anext(pieces, b"")
    with anyio.move_on_after(limit_s):
        return await anext(pieces, b"")
    raise httpx.ReadTimeout(f"no byte of the stream within {limit_s:.3g} s")


class _Answer(httpx.AsyncByteStream):
    """A stream on its way to the user, as the server sends it."""

    def __init__(
        self,
        core: Core,
        exchange: Exchange,
        reading: Reading,
        *,
        stream: httpx.AsyncByteStream,
        first: bytes,
        pieces: AsyncIterator[bytes],
    ) -> None:
        self._core = core
        self._exchange = exchange
        self._reading = reading
        self._stream = stream
        self._first = first
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        feed = self._reading.feed
        try:
            if shown := feed(self._first):
                yield shown
            async for piece in self._pieces:
                if shown := feed(piece):
                    yield shown
        except httpx.TransportError as error:
            raise self._core.broke(self._exchange, error) from error
        if shown := self._reading.rest():
            yield shown

    async def aclose(self) -> None:
        """The user has all, or wants no more."""
        try:
            await self._stream.aclose()
        finally:
            self._core.router.ended(self._exchange, self._reading.drafts())
