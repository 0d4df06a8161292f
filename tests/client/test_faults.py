"""What breaks, and what becomes of the requests: each fault, sync and async, whole and streamed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import autospec
from autospec.client.core import Waits
from autospec.client.counters import Counters
from autospec.engine.ports import choose_port
from autospec.errors import InputError, RequestError
from tests.client.helpers import IDS, eagle, plain
from tests.fake_sglang import FakeSGLang

#: Waits that a test can afford.
WAITS = Waits(stream_start_s=0.3, answer_s=0.3, look_s=0.3)
QUICK, SHORT = httpx.Timeout(20.0), httpx.Timeout(5.0, read=0.3)
#: An address at which nothing listens.
NOWHERE = f"http://127.0.0.1:{choose_port('127.0.0.1')}"
BODY: dict[str, Any] = {"input_ids": IDS}

Ask = Callable[..., tuple[httpx.Response, Counters]]


def ask_sync(url: str, plain_url: str | None, body: dict[str, Any], **options: Any) -> Any:
    """One request; gives the answer and what the client counted."""
    options = {"timeout": QUICK, **options}
    with autospec.Client(url, plain_url, **options) as client:
        answer = client.post("/generate", json=body)
        return answer, client.counters()


def ask_async(url: str, plain_url: str | None, body: dict[str, Any], **options: Any) -> Any:
    """The same in an event loop."""
    merged = {"timeout": QUICK, **options}

    async def run() -> Any:
        async with autospec.AsyncClient(url, plain_url, **merged) as client:
            answer = await client.post("/generate", json=body)
            return answer, client.counters()

    return asyncio.run(run())


@pytest.fixture(params=[ask_sync, ask_async], ids=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Any:
    """How to make one request."""
    return request.param


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def body(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What to ask for."""
    return {**BODY, "stream": request.param}


@pytest.fixture(scope="module")
def reserve() -> Iterator[FakeSGLang]:
    """A plain server in good health."""
    with plain() as server:
        yield server


@pytest.mark.parametrize("faults", ["http500:1", "drop:1", "hang:1"])
def test_request_that_fails_before_its_first_byte_is_answered_by_the_other_server(
    ask: Ask, body: dict[str, Any], reserve: FakeSGLang, faults: str
) -> None:
    """Whatever the speculative server does instead of answering, whole or streamed."""
    with eagle(faults) as server:
        answer, counters = ask(server.url, reserve.url, body, waits=WAITS)
    assert answer.status_code == 200
    assert b'"output_ids"' in answer.content
    assert answer.extensions["autospec.server"] == "plain"
    assert counters.failovers == counters.failures["speculative"] == 1
    assert (counters.unanswered, counters.requests["plain"]) == (0, 1)


def test_stream_without_a_first_byte_is_answered_by_the_other_server(
    ask: Ask, reserve: FakeSGLang
) -> None:
    """A server that sends headers and then hangs has not answered."""
    with eagle("silent:1") as server:
        answer, counters = ask(server.url, reserve.url, {**BODY, "stream": True}, waits=WAITS)
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert counters.failovers == 1


def test_dead_server_is_passed_over(ask: Ask, body: dict[str, Any], reserve: FakeSGLang) -> None:
    """Nothing listens at the speculative address."""
    answer, counters = ask(NOWHERE, reserve.url, body)
    assert answer.status_code == 200
    assert counters.up == {"speculative": False, "plain": True}


def test_dead_plain_server_is_passed_over_too(ask: Ask, body: dict[str, Any]) -> None:
    """The policy's wish for plain decoding is no reason to lose a request."""
    with eagle() as server:
        answer, counters = ask(server.url, NOWHERE, body, policy="off")
    assert answer.extensions["autospec.server"] == "speculative"
    assert counters.requests == {"speculative": 1, "plain": 0}


def test_slow_server_keeps_its_requests(ask: Ask, body: dict[str, Any]) -> None:
    """Slow is not dead: within its limits an answer may take its time."""
    with eagle(step_s=0.02) as slow, plain() as other:
        answer, counters = ask(slow.url, other.url, body, policy="fixed")
    assert answer.extensions["autospec.server"] == "speculative"
    assert counters.failures == {"speculative": 0, "plain": 0}


def test_begun_stream_outlives_the_limit_for_its_first_byte(ask: Ask) -> None:
    """The limit is for the first byte and not for what follows."""
    limit_s = 0.7
    waits = Waits(stream_start_s=limit_s)
    with eagle(step_s=0.06) as slow, plain() as other:
        slow.server.scheduler.skill = 0.0
        answer, counters = ask(slow.url, other.url, {**BODY, "stream": True}, waits=waits)
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert answer.elapsed.total_seconds() > limit_s
    assert counters.requests == {"speculative": 1, "plain": 0}


@pytest.mark.parametrize("faults", ["cut:1", "stall:1"])
def test_begun_stream_that_breaks_off_is_an_error_and_is_not_asked_for_again(
    ask: Ask, reserve: FakeSGLang, faults: str
) -> None:
    """Nothing that the user has seen is sent a second time, by any server."""
    asked = len(reserve.server.requests)
    with eagle(faults) as server:
        with pytest.raises(RequestError, match="broke off") as caught:
            ask(server.url, reserve.url, {**BODY, "stream": True}, timeout=SHORT)
        assert len(server.server.requests) == 1
    assert len(reserve.server.requests) == asked
    assert isinstance(caught.value, httpx.TransportError)


def test_what_was_read_of_a_broken_stream_is_what_was_sent(reserve: FakeSGLang) -> None:
    """The first events arrive once, then the error."""
    seen: list[bytes] = []
    with (
        eagle("cut:1") as server,
        autospec.Client(server.url, reserve.url) as client,
        client.stream("POST", "/generate", json={**BODY, "stream": True}) as response,
        pytest.raises(httpx.RemoteProtocolError, match="broke off"),
    ):
        seen.extend(response.iter_bytes())
    assert b"".join(seen).count(b"data: ") == 1


def test_no_server_left_is_one_clear_error(ask: Ask, body: dict[str, Any]) -> None:
    """It names both servers and what each did, and is httpx's error as well as autospec's."""
    with (
        eagle("hang:1") as server,
        pytest.raises(RequestError, match=r"speculative server: ReadTimeout.*plain server: Conn"),
    ):
        ask(server.url, NOWHERE, body, waits=WAITS)
    with pytest.raises(httpx.ConnectError, match="there is no plain_url"):
        ask(NOWHERE, None, body)


def test_hung_server_without_a_reserve_ends_with_the_users_own_timeout(ask: Ask) -> None:
    """Without a reserve only the user's limits hold."""
    with eagle("hang:1") as server:
        with pytest.raises(httpx.ReadTimeout, match="no answer: speculative server") as caught:
            ask(server.url, None, BODY, timeout=SHORT)
        assert isinstance(caught.value, RequestError)


def test_last_servers_500_reaches_the_user_as_it_is(ask: Ask, body: dict[str, Any]) -> None:
    """An HTTP answer is what users of httpx understand."""
    with eagle("http500:1") as one, plain("http500:1") as other:
        answer, counters = ask(one.url, other.url, body)
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert counters.failures == {"speculative": 1, "plain": 1}


def test_untrue_metadata_changes_no_answer_and_no_decision(
    ask: Ask, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """It is counted and said once; the policy does not hear of it."""
    with eagle("untrue:1") as server, plain() as other, caplog.at_level(logging.WARNING):
        answer, counters = ask(server.url, other.url, body)
    assert b'"many"' in answer.content
    assert (counters.unreadable, counters.verify_steps) == (1, 0)
    assert counters.requests == {"speculative": 1, "plain": 0}
    assert len([r for r in caplog.records if r.name == "autospec.client"]) == 1


def test_connection_that_broke_is_tried_again_at_the_same_server(ask: Ask) -> None:
    """A server closes what was idle; a request that crosses with that is not lost."""
    with eagle("drop:2") as server:
        server.server.requests.append({})
        answer, counters = ask(server.url, None, BODY)
    assert answer.status_code == 200
    assert counters.failures["speculative"] == 0


def test_body_that_can_be_read_once_is_sent_once(reserve: FakeSGLang) -> None:
    """It is passed on, and its failure is final."""
    with eagle("http500:1") as server, autospec.Client(server.url, reserve.url) as client:
        answer = client.post("/generate", content=iter([b'{"input_ids":', b" [1, 2]}"]))
        assert answer.status_code == 500


@pytest.mark.parametrize("name", ["stream_start_s", "answer_s", "look_s"])
def test_waits_are_checked(name: str) -> None:
    """No time at all is no limit that could be meant."""
    with pytest.raises(InputError, match=name):
        Waits(**{name: 0.0})
