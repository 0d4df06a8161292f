"""Several small connection pools in place of a large one."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from autospec.client import pools
from autospec.client.pools import WIDTH, AsyncPools, Pools
from tests.fake_sglang import FakeSGLang

MANY = 2 * WIDTH + 3


def test_pools_are_opened_as_requests_need_them_and_places_are_freed(
    fake_server: FakeSGLang,
) -> None:
    """A pool for every eight requests in flight; one is enough when they come one by one."""
    transport = Pools({})
    with httpx.Client(transport=transport) as client:
        url = f"{fake_server.url}/ready"
        for _ in range(MANY):
            assert client.get(url).status_code == 200
        assert len(transport._pools) == 1
        meet = threading.Barrier(MANY)

        def hold(_: int) -> None:
            with client.stream("GET", url) as response:
                meet.wait(20)
                response.read()

        with ThreadPoolExecutor(MANY) as threads:
            list(threads.map(hold, range(MANY)))
        assert len(transport._pools) == 3
        assert transport._seats._taken == [0, 0, 0]


def test_async_pools_do_the_same(fake_server: FakeSGLang) -> None:
    """Within an event loop."""

    async def run() -> AsyncPools:
        transport = AsyncPools({})
        async with httpx.AsyncClient(transport=transport) as client:
            url = f"{fake_server.url}/ready"
            answers = await asyncio.gather(*(client.get(url) for _ in range(MANY)))
            assert {answer.status_code for answer in answers} == {200}
        return transport

    transport = asyncio.run(run())
    assert len(transport._pools) == 3
    assert transport._seats._taken == [0, 0, 0]


def test_failed_request_frees_its_place() -> None:
    """Nothing is left taken by what never came to be."""
    transport = Pools({})
    with httpx.Client(transport=transport) as client, pytest.raises(httpx.ConnectError):
        client.get("http://127.0.0.1:1")
    assert transport._seats._taken == [0]


def test_limits_of_the_user_hold_for_all_connections() -> None:
    """Limits, and connections that requests share, are one pool's; so is what it is told of TLS."""
    limits = httpx.Limits(max_connections=2)
    assert isinstance(pools.transport({"limits": limits}), httpx.HTTPTransport)
    assert isinstance(pools.async_transport({"limits": limits}), httpx.AsyncHTTPTransport)
    assert isinstance(pools.transport({"verify": False}), Pools)
    assert isinstance(pools.async_transport({}), AsyncPools)
