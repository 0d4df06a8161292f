"""The blocking transport: sends each request where the router says, and on where that fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import httpx

from autospec.client.core import Core, Reading, is_stream, with_read_timeout
from autospec.client.deadlines import Watchdog
from autospec.client.exchange import Exchange
from autospec.engine.answers import stream_error

__all__ = ["RoutingTransport"]


class RoutingTransport(httpx.BaseTransport):
    """Routes requests to the speculative server's address; passes others on as they are.

    Safe to use from many threads.
    """

    def __init__(self, inner: httpx.BaseTransport, core: Core) -> None:
        self._inner = inner
        self._core = core
        self._watchdog = Watchdog()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; its answer is untouched."""
        exchange, body = self._core.begin(request)
        if exchange is None:
            return self._inner.handle_request(request)
        try:
            while True:
                if exchange.look:
                    self._look(exchange)
                try:
                    response = self._attempt(request, exchange, body)
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

    def close(self) -> None:
        """Close all connections."""
        self._inner.close()

    def _look(self, exchange: Exchange) -> None:
        """Find out whether a server that was down is back."""
        try:
            response = self._inner.handle_request(self._core.health(exchange))
            stream = cast("httpx.SyncByteStream", response.stream)
            try:
                for _ in stream:
                    pass
            finally:
                stream.close()
            alive = response.status_code < 500
        except httpx.TransportError:
            alive = False
        self._core.router.looked(exchange, alive=alive)

    def _attempt(
        self, request: httpx.Request, exchange: Exchange, body: bytes | None
    ) -> httpx.Response | None:
        """Ask one server; None if it failed and another one is to be asked."""
        core = self._core
        sending, limit_s = core.send(request, exchange, body)
        timeouts = None if limit_s is None else with_read_timeout(sending.request, limit_s)
        begun_s = core.router.clock()
        try:
            response = self._inner.handle_request(sending.request)
        finally:
            if timeouts is not None:
                timeouts["read"] = timeouts["body"]
        stream = cast("httpx.SyncByteStream", response.stream)
        if not is_stream(response):
            try:
                content = b"".join(stream)
            finally:
                stream.close()
            if core.refused(exchange, response.status_code):
                return None
            core.whole(exchange, sending, response, content)
            return response
        rest_s = None if limit_s is None else max(limit_s - core.router.clock() + begun_s, 0.0)
        pieces = iter(stream)
        try:
            first = self._first(response, pieces, rest_s)
        except BaseException:
            stream.close()
            raise
        if core.refused(exchange, stream_error(first)):
            stream.close()
            return None
        core.router.heard(exchange)
        core.deliver(exchange, response)
        reading = Reading(sending, exchange)
        response.stream = _Answer(
            core, exchange, reading, stream=stream, first=first, pieces=pieces
        )
        return response

    def _first(
        self, response: httpx.Response, pieces: Iterator[bytes], limit_s: float | None
    ) -> bytes:
        """The first piece of a stream, empty if there is none.

        Raises:
            httpx.ReadTimeout: it took too long.
        """
        if limit_s is None or response.http_version == "HTTP/2":
            # A connection of HTTP/2 has other streams, which must not end with this one.
            return next(pieces, b"")
        deadline = self._watchdog.watch(response.extensions.get("network_stream"), limit_s)
        if deadline is None:
            return next(pieces, b"")
        try:
            first = next(pieces, b"")
        except httpx.TransportError as error:
            deadline.met()
            if deadline.expired:
                raise httpx.ReadTimeout(f"no byte of the stream within {limit_s:.3g} s") from error
            raise
        deadline.met()
        return first


class _Answer(httpx.SyncByteStream):
    """A stream on its way to the user, as the server sends it."""

    def __init__(
        self,
        core: Core,
        exchange: Exchange,
        reading: Reading,
        *,
        stream: httpx.SyncByteStream,
        first: bytes,
        pieces: Iterator[bytes],
    ) -> None:
        self._core = core
        self._exchange = exchange
        self._reading = reading
        self._stream = stream
        self._first = first
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        feed = self._reading.feed
        try:
            if shown := feed(self._first):
                yield shown
            for piece in self._pieces:
                if shown := feed(piece):
                    yield shown
        except httpx.TransportError as error:
            raise self._core.broke(self._exchange, error) from error
        if shown := self._reading.rest():
            yield shown

    def close(self) -> None:
        """The user has all, or wants no more."""
        self._stream.close()
        self._core.router.ended(self._exchange, self._reading.drafts())
