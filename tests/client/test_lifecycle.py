"""Servers that die and come back, users who leave, and errors as ``openai`` sees them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

import autospec
from autospec.client import RoutingDecision, Waits
from autospec.engine.ports import choose_port
from autospec.errors import RequestError
from tests.client.helpers import IDS, MESSAGES, eagle, plain

WAITS = Waits(stream_start_s=0.3, answer_s=0.3, look_s=0.3)
QUICK = httpx.Timeout(20.0)
#: An address at which nothing listens.
NOWHERE = f"http://127.0.0.1:{choose_port('127.0.0.1')}"


def test_openai_package_sees_errors_that_it_knows() -> None:
    """Connection errors and timeouts are its own, with autospec's as the cause."""
    with eagle("hang:1") as server:
        for url, kind in (
            (NOWHERE, openai.APIConnectionError),
            (server.url, openai.APITimeoutError),
        ):
            http = autospec.Client(url)
            client = openai.OpenAI(
                base_url=f"{url}/v1", api_key="x", http_client=http, max_retries=0, timeout=0.3
            )
            with http, pytest.raises(kind) as caught:
                client.chat.completions.create(model="m", messages=MESSAGES)
            assert isinstance(caught.value.__cause__, RequestError)


def test_killed_server_loses_no_request_and_is_used_again_when_it_is_back() -> None:
    """Under load from many threads: down, over to the plain server, and back."""
    events: list[RoutingDecision] = []
    port = choose_port("127.0.0.1")
    stop = threading.Event()
    with (
        plain() as other,
        autospec.Client(
            f"http://127.0.0.1:{port}", other.url, policy="fixed", timeout=QUICK
        ) as client,
    ):
        client.on_decision(events.append)

        def work(seed: int) -> int:
            done = 0
            while not stop.is_set():
                assert client.generate(input_ids=[seed, done]).output_ids
                done += 1
            return done

        with ThreadPoolExecutor(8) as pool:
            try:
                with eagle(port=port):
                    jobs = [pool.submit(work, seed) for seed in range(8)]
                    _until(lambda: client.counters().requests["speculative"] > 40)
                _until(lambda: client.counters().requests["plain"] > 40)
                assert not client.counters().up["speculative"]
                with eagle(port=port):
                    before = client.counters().requests["speculative"]
                    _until(lambda: client.counters().requests["speculative"] > before + 40)
            finally:
                stop.set()
            assert sum(job.result(10) for job in jobs) == sum(client.counters().requests.values())
        assert client.counters().running == {"speculative": 0, "plain": 0}
    assert [event.action for event in events[:2]] == ["failover", "recovery"]


def test_server_that_hangs_when_looked_at_stays_down() -> None:
    """One request waits for the look, the others do not; nobody is sent there."""
    with (
        eagle() as server,
        plain() as other,
        autospec.Client(server.url, other.url, policy="fixed", waits=WAITS) as client,
    ):
        server.server.ready = False
        server.server.faults["http500"] = "1"
        for _ in range(3):
            assert client.generate(input_ids=IDS).server == "plain"
        asked = len(server.server.requests)
        time.sleep(1.1)
        assert [client.generate(input_ids=IDS).server for _ in range(3)] == ["plain"] * 3
        assert len(server.server.requests) == asked
        assert server.server.paths[-1] == "/health_generate"


def test_server_that_says_nothing_to_anybody_is_looked_at_before_it_is_sent_more() -> None:
    """Whole answers have no limit by default; a hung server still gets no new ones for long."""
    waits = Waits(stream_start_s=0.2, look_s=0.3)
    port = choose_port("127.0.0.1")
    url = f"http://127.0.0.1:{port}"
    with (
        plain() as other,
        autospec.Client(url, other.url, waits=waits, timeout=QUICK) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with eagle("hang:1", port=port) as server:
            waiting = pool.submit(client.generate, input_ids=IDS)
            _until(lambda: len(server.server.requests) == 1)
            time.sleep(0.3)
            server.server.ready = False
            assert [client.generate(input_ids=IDS).server for _ in range(3)] == ["plain"] * 3
            assert len(server.server.requests) == 1
            assert not client.counters().up["speculative"]
        assert waiting.result(10).server == "plain"
        assert client.counters().unanswered == 0


def test_proxy_is_no_way_around_the_router() -> None:
    """A transport of httpx's own making would send past it; here the proxy is the router's."""
    with plain() as other, autospec.Client(NOWHERE, other.url, proxy=NOWHERE) as client:
        with pytest.raises(RequestError, match="speculative server"):
            client.generate(input_ids=IDS)
        assert client.counters().failures["speculative"] == 1


def test_user_who_leaves_is_no_failure() -> None:
    """A stream closed early frees its place and says nothing against the server."""
    with eagle() as server, plain() as other, autospec.Client(server.url, other.url) as client:
        for _ in range(5):
            stream = client.stream_generate(input_ids=IDS)
            next(iter(stream))
            stream.close()  # type: ignore[attr-defined]  # a generator
        counters = client.counters()
    assert counters.failures["speculative"] == counters.running["speculative"] == 0


def test_cancelled_request_frees_its_place() -> None:
    """Cancelling is the user's right, wherever the request is."""
    body = {"input_ids": IDS, "stream": True}

    async def run() -> Any:
        async with autospec.AsyncClient(server.url, other.url) as client:
            for after in (0.02, 0.1):
                task = asyncio.create_task(client.post("/generate", json=body))
                await asyncio.sleep(after)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            return client.counters()

    with eagle("silent:1") as server, plain() as other:
        counters = asyncio.run(run())
    assert counters.running == {"speculative": 0, "plain": 0}
    assert counters.failures["speculative"] == 0


class _BrokenStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """An answer that breaks off."""

    def __iter__(self) -> Iterator[bytes]:
        yield b'{"text": "half'
        raise httpx.ReadError("connection lost")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b'{"text": "half'
        raise httpx.ReadError("connection lost")


@pytest.mark.parametrize("fault", ["half", "error event"])
def test_answer_of_which_nothing_was_handed_over_is_asked_for_again(fault: str) -> None:
    """Half of a whole answer, and a stream that begins with the server's own error, count for none.

    Once more at the same server, since the connection broke, and then at the other.
    """
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        events = {"Content-Type": "text/event-stream"}
        if request.url.host == "plain":
            return httpx.Response(200, json={"text": "all", "meta_info": {}})
        if fault == "half":
            return httpx.Response(200, stream=_BrokenStream())
        error = b'data: {"error": {"message": "queue is full", "code": 503}}\n\ndata: [DONE]\n\n'
        return httpx.Response(200, headers=events, content=error)

    async def run() -> str:
        async with autospec.AsyncClient(
            "http://spec", "http://plain", transport=httpx.MockTransport(answer)
        ) as client:
            return (await client.generate("a")).text

    with autospec.Client(
        "http://spec", "http://plain", transport=httpx.MockTransport(answer)
    ) as client:
        assert client.generate("a").text == "all"
    tries = ["spec", "spec", "plain"] if fault == "half" else ["spec", "plain"]
    assert asked == tries
    assert asyncio.run(run()) == "all"
    assert asked == tries * 2


def _until(met: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Wait for something that the load brings about."""
    end = time.monotonic() + limit_s
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)
