"""Transports of httpx that stay fast with many requests in flight.

For every request httpcore looks at each idle connection of its pool, and for each of these at all
others, so that one pool of 64 connections spends more time on itself than on requests. Several
small pools do not. A pool is given a request when all before it are full, so that few are in use
while few requests are in flight.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, cast

import httpx

__all__ = ["LIMITS", "AsyncPools", "Pools", "async_transport", "transport"]

#: A client limits nothing. SGLang closes a connection that was idle for 5 s, and a request that
#: crosses with that is lost, so none is used again that was idle for 2 s.
LIMITS: Final = httpx.Limits(
    max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0
)
#: Requests in flight in one pool.
WIDTH: Final = 8


def transport(options: dict[str, Any]) -> httpx.BaseTransport:
    """Httpx's transport, or several of them where their connections need not be counted together.

    Args:
        options: of ``httpx.HTTPTransport``.
    """
    if _is_one_pool(options):
        return httpx.HTTPTransport(**options)
    return Pools(_with_context(options))


def async_transport(options: dict[str, Any]) -> httpx.AsyncBaseTransport:
    """The same for an event loop."""
    if _is_one_pool(options):
        return httpx.AsyncHTTPTransport(**options)
    return AsyncPools(_with_context(options))


def _is_one_pool(options: dict[str, Any]) -> bool:
    """Whether a limit holds for all connections, or requests share one."""
    return "limits" in options or bool(options.get("http2"))


def _with_context(options: dict[str, Any]) -> dict[str, Any]:
    """The options with TLS set up once, which takes longer than a request."""
    rest = {name: options[name] for name in options.keys() - {"verify", "cert", "trust_env"}}
    chosen = {name: options[name] for name in options.keys() & {"verify", "cert", "trust_env"}}
    return {"limits": LIMITS, **rest, "verify": httpx.create_ssl_context(**chosen)}


class _Seats:
    """How many requests each pool has."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._lock = threading.Lock()

    def take(self) -> int:
        """The first pool with room; one more than there are if there is none."""
        with self._lock:
            for number, taken in enumerate(self._taken):
                if taken < WIDTH:
                    self._taken[number] += 1
                    return number
            self._taken.append(1)
            return len(self._taken) - 1

    def leave(self, number: int) -> None:
        """A request is over."""
        with self._lock:
            self._taken[number] -= 1


class Pools(httpx.BaseTransport):
    """As many transports of httpx as there are requests for."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._pools: dict[int, httpx.HTTPTransport] = {}
        self._seats = _Seats()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request through a pool with room."""
        number = self._seats.take()
        try:
            pool = self._pools.get(number)
            if pool is None:
                pool = self._pools.setdefault(number, httpx.HTTPTransport(**self._options))
            response = pool.handle_request(request)
        except BaseException:
            self._seats.leave(number)
            raise
        stream = cast("httpx.SyncByteStream", response.stream)
        response.stream = _Stream(stream, self._seats, number)
        return response

    def close(self) -> None:
        """Close all pools."""
        for pool in self._pools.values():
            pool.close()


class AsyncPools(httpx.AsyncBaseTransport):
    """The same for an event loop."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._pools: dict[int, httpx.AsyncHTTPTransport] = {}
        self._seats = _Seats()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request through a pool with room."""
        number = self._seats.take()
        try:
            pool = self._pools.get(number)
            if pool is None:
                pool = self._pools[number] = httpx.AsyncHTTPTransport(**self._options)
            response = await pool.handle_async_request(request)
        except BaseException:
            self._seats.leave(number)
            raise
        stream = cast("httpx.AsyncByteStream", response.stream)
        response.stream = _AsyncStream(stream, self._seats, number)
        return response

    async def aclose(self) -> None:
        """Close all pools."""
        for pool in self._pools.values():
            await pool.aclose()


class _Stream(httpx.SyncByteStream):
    """An answer that frees its place when it is closed."""

    def __init__(self, stream: httpx.SyncByteStream, seats: _Seats, number: int) -> None:
        self._stream = stream
        self._seats: _Seats | None = seats
        self._number = number

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._stream)

    def close(self) -> None:
        """Free the place, once."""
        seats, self._seats = self._seats, None
        try:
            self._stream.close()
        finally:
            if seats is not None:
                seats.leave(self._number)


class _AsyncStream(httpx.AsyncByteStream):
    """The same for an event loop."""

    def __init__(self, stream: httpx.AsyncByteStream, seats: _Seats, number: int) -> None:
        self._stream = stream
        self._seats: _Seats | None = seats
        self._number = number

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        """Free the place, once."""
        seats, self._seats = self._seats, None
        try:
            await self._stream.aclose()
        finally:
            if seats is not None:
                seats.leave(self._number)
