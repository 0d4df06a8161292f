"""The client against the fake server, over real HTTP."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.engine.client import EngineClient, EventParser
from autospec.errors import EngineError, InputError, RequestError, WireError
from autospec.measurement import Request
from autospec.metrics import accept_length, tpot_ms, ttft_ms
from tests.fake_sglang import FakeSGLang

T = TypeVar("T")
PROMPT = tuple(range(100, 140))
STREAM = (Path(__file__).parent / "payloads" / "stream_ngram.txt").read_bytes()


def ask(url: str, job: Callable[[EngineClient], Awaitable[T]], *, api_key: str | None = None) -> T:
    """Run one job with a client of its own."""

    async def run() -> T:
        async with EngineClient(url, api_key=api_key, timeout_s=10) as client:
            return await asyncio.wait_for(job(client), 20)

    return asyncio.run(run())


def request(prompt: int = 0, max_new_tokens: int = 32) -> Request:
    """One of many different requests."""
    return Request(prompt, (*PROMPT, prompt), max_new_tokens, label="chat")


async def answering(server: FakeSGLang, requests: int = 1) -> None:
    """Wait until so many requests have tokens: on a busy machine no sleep is long enough."""
    scheduler = server.server.scheduler
    while sum(running.sent > 1 for running in scheduler.running) < requests:  # noqa: ASYNC110 -- another loop's list
        await asyncio.sleep(0.01)


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_events_do_not_depend_on_how_the_stream_is_cut(cuts: list[int]) -> None:
    """Cut at any bytes, a recorded stream gives the same events and its end mark."""
    whole = EventParser()
    expected = whole.feed(STREAM)
    assert len(expected) == 4
    assert whole.done
    parser = EventParser()
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[begin:end] for begin, end in itertools.pairwise(edges)]
    assert [event for piece in pieces for event in parser.feed(piece)] == expected
    assert parser.done


def test_events_may_end_with_carriage_returns_and_have_comments() -> None:
    """What proxies do to a stream is taken: other line ends, comments, no blank after the colon."""
    parser = EventParser()
    assert parser.feed(b": ping\r\n\r\ndata:{}\r\n\r\nevent: x\ndata: [1]\n") == [b"{}", b"[1]"]
    assert not parser.done


def test_a_stream_becomes_a_record(fake_server: FakeSGLang) -> None:
    """A plain answer is timed chunk by chunk, and its counts are the server's."""
    before_s = time.perf_counter()
    record = ask(fake_server.url, lambda client: client.generate(request()))
    assert record.error is None
    assert record.label == "chat"
    assert record.chunk_tokens == tuple(range(1, record.completion_tokens + 1))
    times = (before_s, record.start_s, *record.chunk_s, record.end_s, time.perf_counter())
    assert list(times) == sorted(times)
    assert record.prompt_tokens == len(PROMPT) + 1
    assert record.finish_reason == "stop"
    assert record.verify_ct is None
    assert ttft_ms(record) is not None
    assert tpot_ms(record) is not None
    assert fake_server.server.requests[0]["stream"] is True


def test_an_answer_is_known_as_text_too(fake_server: FakeSGLang) -> None:
    """The same greedy answer, as the server writes its tokens."""
    ids = ask(fake_server.url, lambda client: client.answer(request()))
    text = ask(fake_server.url, lambda client: client.answer_text(request()))
    assert text == " ".join(f"w{token}" for token in ids)


def test_a_speculative_answer_has_its_counts_and_the_same_text() -> None:
    """Speculation changes the chunks and adds counters, not the tokens."""
    with FakeSGLang() as plain:
        ids = ask(plain.url, lambda client: client.answer(request()))
    with FakeSGLang(speculative_algorithm="STANDALONE", speculative_num_steps=4) as server:
        record = ask(server.url, lambda client: client.generate(request()))
        assert ask(server.url, lambda client: client.answer(request())) == ids
    assert record.completion_tokens == len(ids)
    assert record.verify_ct == sum(record.correct_histogram) == len(record.chunk_s) - 1
    assert record.num_correct_drafts == sum(
        count * steps for count, steps in enumerate(record.correct_histogram)
    )
    length = accept_length([record])
    assert length is not None
    assert 1 < length <= 5


def test_flushing_empties_the_prefix_cache_and_the_ngram_memory() -> None:
    """A repeated prompt is cached and drafted better until the server is flushed."""

    async def story(client: EngineClient) -> list[Any]:
        records = [await client.generate(request(0)), await client.generate(request(0))]
        await client.flush()
        return [*records, await client.generate(request(0))]

    with FakeSGLang(speculative_algorithm="NGRAM", speculative_num_draft_tokens=8) as server:
        first, again, flushed = ask(server.url, story)
    assert (first.cached_tokens, flushed.cached_tokens) == (0, 0)
    assert again.cached_tokens == len(PROMPT)
    assert again.num_correct_drafts > first.num_correct_drafts == flushed.num_correct_drafts


def test_a_busy_server_refuses_to_flush() -> None:
    """A flush that does not happen is an error, with the HTTP status."""

    async def story(client: EngineClient) -> None:
        running = asyncio.create_task(client.generate(request(max_new_tokens=150)))
        await answering(server)
        try:
            await client.flush(timeout_s=0)
        finally:
            await client.abort_all()
            await running

    with FakeSGLang(step_s=0.05) as server:
        with pytest.raises(RequestError, match=r"/flush_cache\?timeout=0: HTTP 400") as caught:
            ask(server.url, story)
        assert server.server.flushes == 0
    assert caught.value.status == 400


def test_aborted_requests_become_records_with_an_error() -> None:
    """When the server gives all requests up, each record says so and keeps its chunks."""

    async def story(client: EngineClient) -> list[Any]:
        asked = [request(at, max_new_tokens=150) for at in range(4)]
        running = [asyncio.create_task(client.generate(one)) for one in asked]
        await answering(server, len(asked))
        await client.abort_all()
        return list(await asyncio.gather(*running))

    with FakeSGLang(step_s=0.05) as server:
        records = ask(server.url, story)
    assert all("given up by the server" in str(record.error) for record in records)
    assert all(record.chunk_tokens for record in records)
    assert all(record.finish_reason == "" for record in records)


def test_many_requests_run_at_once() -> None:
    """The client does not limit concurrency: the server has all requests before it begins."""
    with FakeSGLang() as server:
        scheduler = server.server.scheduler
        scheduler.limit = 0

        async def story(client: EngineClient) -> Any:
            running = [asyncio.create_task(client.generate(request(at))) for at in range(200)]
            while len(scheduler.waiting) < len(running):  # noqa: ASYNC110 -- another loop's list
                await asyncio.sleep(0.01)
            before = await client.decode_moments()
            scheduler.limit = 256
            return before, await asyncio.gather(*running), await client.decode_moments()

        before, records, after = ask(server.url, story)
    assert not [record.error for record in records if record.error]
    tokens = sum(record.completion_tokens - 1 for record in records)
    assert after.sum_tokens - before.sum_tokens == tokens
    assert after.num_steps < max(record.completion_tokens for record in records)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ("http500:1", "/generate: HTTP 500: Internal Server Error"),
        ("cut:1", "/generate: connection failed: "),
        ("drop:1", "/generate: connection failed: Server disconnected"),
        ("garbage:1", "/generate: 24 bytes that are not JSON"),
    ],
)
def test_a_failed_request_is_a_record_not_an_exception(faults: str, message: str) -> None:
    """Refusals and lost connections stand in the record."""
    with FakeSGLang(faults) as server:
        record = ask(server.url, lambda client: client.generate(request()))
        assert len(server.server.requests) == 1, "a lost request is not sent again"
    assert str(record.error).startswith(message)
    assert record.finish_reason == ""
    assert record.end_s >= record.start_s
    assert bool(record.chunk_tokens) == (faults in ("cut:1", "garbage:1"))


def test_a_prompt_beyond_the_context_fails_with_the_servers_words(fake_server: FakeSGLang) -> None:
    """The streamed form of the refusal is found in the record, the other is raised."""
    long = Request(0, tuple(range(9000)), 4)
    record = ask(fake_server.url, lambda client: client.generate(long))
    assert "The input (9000 tokens) is longer than" in str(record.error)
    with pytest.raises(RequestError, match="HTTP 400: The input"):
        ask(fake_server.url, lambda client: client.answer(long))


def test_a_server_that_is_too_slow_times_out() -> None:
    """A request that outlives its time becomes a record that names the time, chunks kept."""

    async def run(url: str) -> Any:
        async with EngineClient(url, timeout_s=1, stall_timeout_s=0.9) as client:
            return await client.generate(request())

    with FakeSGLang(step_s=0.2) as server:
        record = asyncio.run(run(server.url))
    assert record.error == "/generate: no answer within 1 s"
    assert record.chunk_tokens
    assert record.completion_tokens == record.chunk_tokens[-1]
    assert 1 <= record.end_s - record.start_s < 5


def test_a_stream_that_stops_times_out_long_before_its_whole_time() -> None:
    """Silence in mid-stream is named with its length, and what came before it is kept."""

    async def run(url: str) -> Any:
        async with EngineClient(url, timeout_s=60, stall_timeout_s=0.5) as client:
            return await client.generate(request())

    with FakeSGLang("stall:1") as server:
        record = asyncio.run(run(server.url))
    assert record.error == "/generate: the server stalled: no byte for 0.5 s"
    assert record.chunk_tokens == (1,)
    assert 0.5 <= record.end_s - record.chunk_s[-1] < 10


def test_silence_is_allowed_where_an_answer_comes_in_one_piece() -> None:
    """A whole answer and a flush take as long as they take."""

    async def story(client: EngineClient) -> Any:
        answer = asyncio.create_task(client.answer(request()))
        await answering(server)
        await client.flush()
        return await answer

    async def run(url: str) -> Any:
        async with EngineClient(url, timeout_s=30, stall_timeout_s=0.4) as client:
            return await story(client)

    with FakeSGLang(step_s=0.05) as server:
        assert len(asyncio.run(run(server.url))) >= 8


def test_a_connection_that_was_idle_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server closes it one day, and a request that crosses with that would be lost."""
    monkeypatch.setattr("autospec.engine.client._IDLE_S", 0.2)
    ports: list[int] = []

    async def answer(asked: web.Request) -> web.Response:
        assert asked.transport is not None
        ports.append(asked.transport.get_extra_info("peername")[1])
        return web.Response(body=STREAM)

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/generate", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with EngineClient(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
                await client.generate(request())
                await client.generate(request())
                await asyncio.sleep(0.5)
                await client.generate(request())
        finally:
            await runner.cleanup()

    asyncio.run(run())
    first, busy, idle = ports
    assert first == busy != idle


@pytest.mark.parametrize("options", [{"timeout_s": 0}, {"stall_timeout_s": -1.0}])
def test_a_timeout_must_be_above_zero(options: dict[str, Any]) -> None:
    """The library below would take 0 for no limit at all."""
    with pytest.raises(InputError, match="must be above 0"):
        EngineClient("http://127.0.0.1:9", **options)


def test_a_server_that_is_gone_is_not_ready_and_fails_requests() -> None:
    """Nothing listens: not ready, a record with an error, and errors from the rest."""

    async def story(client: EngineClient) -> Any:
        assert not await client.ready()
        with pytest.raises(RequestError, match="/server_info: connection failed: ") as caught:
            await client.server_info()
        assert caught.value.status is None
        return await client.generate(request())

    record = ask("http://127.0.0.1:9", story)
    assert str(record.error).startswith("/generate: connection failed: ")
    assert record.chunk_s == ()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"data: {nonsense\n\ndata: [DONE]\n\n", "/generate: 9 bytes that are not JSON"),
        (b"data: [DONE]\n\n", "/generate: the stream ended before its end mark"),
        (STREAM.replace(b"data: [DONE]\n\n", b""), "the stream ended before its end mark"),
        (b'data: {"meta_info":{"completion_tokens":1}}\n\ndata: [DONE]\n\n', "'finish_reason'"),
    ],
)
def test_a_malformed_stream_is_a_record_with_an_error(body: bytes, message: str) -> None:
    """Whatever a broken server streams, the record says what was wrong with it."""

    async def run() -> Any:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(body=body)

        app = web.Application()
        app.router.add_post("/generate", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with EngineClient(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
                return await client.generate(request())
        finally:
            await runner.cleanup()

    assert message in asyncio.run(run()).error


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
RAW = [
    b"",
    b"not HTTP at all\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
    HEAD,
    HEAD + b"Content-Length: 99999\r\n\r\n" + STREAM,
    CHUNKED + b"zz\r\ndata: {}\n\n\r\n",
    CHUNKED + b"5\r\ndata: {}\n\n\r\n",
    CHUNKED + b"%x\r\n%b\r\n" % (len(STREAM), STREAM),
    CHUNKED + b"%x\r\n%b\r\nzz\r\n" % (len(STREAM), STREAM),
    HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    HEAD + b"\xff\xfe: \xff\r\n\r\n",
    b"HTTP/1.1 307 Moved\r\nLocation: ://\r\nContent-Length: 0\r\n\r\n",
]


@settings(max_examples=60)
@given(
    body=st.sampled_from(RAW)
    | st.binary(max_size=200)
    | st.builds(lambda end: HEAD + b"\r\n" + STREAM[:end], st.integers(0, len(STREAM) - 16))
    | st.builds(lambda junk: CHUNKED + junk, st.binary(max_size=50))
)
def test_whatever_bytes_come_before_the_connection_ends_become_a_record(body: bytes) -> None:
    """No answer of a broken server or proxy is an exception, and none passes for a whole one."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(body)
        await writer.drain()
        writer.close()

    async def run() -> Any:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server, EngineClient(url, timeout_s=5, stall_timeout_s=5) as client:
            return await client.generate(request())

    record = asyncio.run(run())
    assert record.error is not None
    assert record.error.startswith("/generate: ")
    assert len(record.error.splitlines()) == 1
    assert record.finish_reason == ""


def test_tokenize_renders_conversations(fake_server: FakeSGLang) -> None:
    """A text and a conversation give ids; the conversation's begin with the template's mark."""
    text = ask(fake_server.url, lambda client: client.tokenize("one two one"))
    chat = ask(
        fake_server.url,
        lambda client: client.tokenize(messages=[{"role": "user", "content": "one two one"}]),
    )
    assert len(text) == 3
    assert text[0] == text[2] != text[1]
    assert chat[0] == 1
    assert set(text) < set(chat)


def test_a_refused_conversation_does_not_echo_it(fake_server: FakeSGLang) -> None:
    """The reason is shown, what was sent is not."""
    bad = [{"role": "my secret question"}]
    with pytest.raises(RequestError, match="HTTP 400: Field required") as caught:
        ask(fake_server.url, lambda client: client.tokenize(messages=bad))
    assert "secret" not in str(caught.value)


def test_server_and_model_describe_themselves() -> None:
    """Speculation without a limit admits 48 requests, and the server says so."""
    with FakeSGLang(model_path="org/model", speculative_algorithm="NGRAM") as server:
        info = ask(server.url, lambda client: client.server_info())
        model = ask(server.url, lambda client: client.model_info())
        assert ask(server.url, lambda client: client.ready())
    assert info.version == "0.5.23"
    assert info.max_running_requests == info.resolved["max_running_requests"] == 48
    assert info.resolved["speculative_num_draft_tokens"] == 12
    assert model.model_path == "org/model"


def test_metrics_need_the_servers_flag(fake_server: FakeSGLang) -> None:
    """Without ``enable_metrics`` there is no such page."""
    with pytest.raises(RequestError, match="/metrics: HTTP 404"):
        ask(fake_server.url, lambda client: client.metrics())


def test_the_api_key_is_sent_and_never_shown() -> None:
    """The right key is let in; with a wrong one the error does not hold it."""
    with FakeSGLang(api_key="hush-right") as server:
        info = ask(server.url, lambda client: client.server_info(), api_key="hush-right")
        assert "hush" not in repr(info)
        with pytest.raises(RequestError, match="HTTP 401: Unauthorized") as caught:
            ask(server.url, lambda client: client.server_info(), api_key="hush-wrong")
    assert caught.value.status == 401
    assert "hush" not in str(caught.value)


def test_an_answer_of_another_engine_is_a_wire_error() -> None:
    """JSON without SGLang's keys is refused by name."""

    async def run() -> None:
        async def answer(_: web.Request) -> web.Response:
            return web.json_response({"version": "9"})

        app = web.Application()
        app.router.add_get("/server_info", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            async with EngineClient(f"http://127.0.0.1:{runner.addresses[0][1]}/") as client:
                await client.server_info()
        finally:
            await runner.cleanup()

    with pytest.raises(WireError, match="key 'internal_states' is missing"):
        asyncio.run(run())


def test_a_client_works_only_inside_its_block() -> None:
    """Using a client that was never opened is an error, not a hang."""
    with pytest.raises(EngineError, match="closed"):
        asyncio.run(EngineClient("http://127.0.0.1:9").server_info())
