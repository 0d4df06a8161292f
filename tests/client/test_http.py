"""Requests as users make them: SGLang's own API and the ``openai`` package, over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

import autospec
from autospec.client.events import ResponseReport
from autospec.errors import InputError, RequestError
from tests.client.helpers import IDS, MESSAGES, eagle, plain
from tests.fake_sglang import FakeSGLang

CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"model": "m", "messages": MESSAGES},
    COMPLETIONS: {"model": "m", "prompt": "one two three"},
    GENERATE: {"text": "one two three"},
}


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[FakeSGLang, FakeSGLang]]:
    """A speculative and a plain server."""
    with eagle() as one, plain() as other:
        yield one, other


@pytest.fixture
def urls(servers: tuple[FakeSGLang, FakeSGLang]) -> tuple[str, str]:
    """Their addresses."""
    return servers[0].url, servers[1].url


def test_generate_takes_text_tokens_and_conversations(urls: tuple[str, str]) -> None:
    """All three answer, with SGLang's metadata and the accept length."""
    with autospec.Client(*urls, policy="fixed") as client:
        params = {"max_new_tokens": 12}
        prompts: list[dict[str, Any]]
        prompts = [{"text": "a b c"}, {"input_ids": IDS}, {"messages": MESSAGES}]
        for prompt in prompts:
            answer = client.generate(**prompt, sampling_params=params)
            assert 0 < len(answer.output_ids) <= 12
            assert answer.text.count("w") == len(answer.output_ids)
            assert answer.server == "speculative"
            assert (answer.accept_length or 0) > 1
        with pytest.raises(InputError, match="exactly one"):
            client.generate("a", input_ids=[1])
        with pytest.raises(InputError, match="exactly one"):
            client.generate()
        with pytest.raises(InputError, match="exactly one"):
            client.generate("a", messages=MESSAGES)


def test_generate_streams_the_same_answer(urls: tuple[str, str]) -> None:
    """Each item has all so far, and the last one says of drafts."""
    with autospec.Client(*urls, policy="fixed") as client:
        whole = client.generate(input_ids=IDS)
        parts = list(client.stream_generate(input_ids=IDS))
    assert parts[-1].output_ids == whole.output_ids
    assert parts[-1].finish_reason == whole.finish_reason == "stop"
    assert [part.accept_length for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert parts[-1].accept_length == whole.accept_length
    assert len(parts) > 2


def test_async_client_does_the_same(urls: tuple[str, str]) -> None:
    """Whole and streamed, many at once."""

    async def run() -> None:
        async with autospec.AsyncClient(*urls, policy="fixed") as client:
            wholes = await asyncio.gather(
                *(client.generate(input_ids=[*IDS, n]) for n in range(20)),
                client.generate(messages=MESSAGES),
            )
            parts = [part async for part in client.stream_generate(input_ids=[*IDS, 0])]
            assert parts[-1].output_ids == wholes[0].output_ids
            assert all(whole.accept_length is not None for whole in wholes)
            assert client.counters().running == {"speculative": 0, "plain": 0}

    asyncio.run(run())


def test_refusal_is_an_error_with_its_status(urls: tuple[str, str]) -> None:
    """What the server will not do is said with its reason, and no other server is asked."""
    with autospec.Client(*urls) as client:
        with pytest.raises(RequestError, match=r"HTTP 400: unknown field `wrong`") as caught:
            client.generate("a", sampling_params={"wrong": 1})
        assert caught.value.status == 400
        with pytest.raises(RequestError, match="400"):
            list(client.stream_generate("a", sampling_params={"wrong": 1}))
        assert client.counters().failovers == 0
        with pytest.raises(RequestError, match="longer than the model's context"):
            list(client.stream_generate(input_ids=list(range(9000))))


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_answers_pass_byte_for_byte(urls: tuple[str, str], path: str, stream: bool) -> None:
    """What the user gets is what the server says to whoever asks it directly."""
    body = {**BODIES[path], "stream": stream, "stream_options": {"include_usage": True}}
    with autospec.Client(*urls, policy="fixed") as client, httpx.Client() as direct:
        direct.post(urls[0] + path, json=body)  # so that both find the prompt in the prefix cache
        ours = client.post(path, json=body)
        theirs = direct.post(urls[0] + path, json=body)
        assert client.counters().verify_steps > 0
    volatile = path == GENERATE
    assert _stable(ours.content, volatile) == _stable(theirs.content, volatile)
    for name in ("Content-Type", "Content-Length"):
        if not (volatile and name == "Content-Length"):
            assert ours.headers.get(name) == theirs.headers.get(name)


def _stable(content: bytes, volatile: bool) -> list[bytes]:
    """Without the parts in which two answers to one request always differ."""
    return [b for b in content.split(b", ") if not (volatile and (b'"e2e' in b or b'"id"' in b))]


def test_openai_package_works_and_its_acceptance_is_known(urls: tuple[str, str]) -> None:
    """Chat and completion, whole and streamed; nothing of SGLang's extension is to be seen."""
    reports: list[ResponseReport] = []
    with autospec.Client(*urls, policy="fixed") as http:
        http.on_response(reports.append)
        client = openai.OpenAI(base_url=f"{urls[0]}/v1", api_key="EMPTY", http_client=http)
        chat = client.chat.completions.create(model="m", messages=MESSAGES)
        chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
        text = client.completions.create(model="m", prompt="a b")
        assert [model.id for model in client.models.list()] == ["fake/model"]
    assert "sglext" not in chat.model_dump()
    assert all(chunk.choices for chunk in chunks)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == (
        chat.choices[0].message.content
    )
    assert text.choices[0].text
    assert [report.path for report in reports] == [CHAT, CHAT, COMPLETIONS]
    assert all((report.accept_length or 0) > 1 for report in reports)
    assert [report.streamed for report in reports] == [False, True, False]


def test_openai_package_works_asynchronously(urls: tuple[str, str]) -> None:
    """The same in an event loop."""

    async def run() -> None:
        async with autospec.AsyncClient(*urls, policy="off") as http:
            client = openai.AsyncOpenAI(base_url=f"{urls[0]}/v1", api_key="EMPTY", http_client=http)
            chat: Any = client.chat.completions
            whole = await chat.create(model="m", messages=MESSAGES)
            stream = await chat.create(model="m", messages=MESSAGES, stream=True)
            text = "".join([c.choices[0].delta.content async for c in stream])
            assert text == whole.choices[0].message.content
            assert http.counters().requests == {"speculative": 0, "plain": 2}

    asyncio.run(run())


def test_details_can_be_left_out(servers: tuple[FakeSGLang, FakeSGLang]) -> None:
    """Then requests go out as they are, and OpenAI answers tell nothing."""
    with autospec.Client(servers[0].url, openai_details=False) as client:
        client.post(CHAT, json=BODIES[CHAT])
        assert servers[0].server.requests[-1] == BODIES[CHAT]
        assert (client.counters().unknown, client.counters().verify_steps) == (1, 0)


def test_only_generation_is_routed(servers: tuple[FakeSGLang, FakeSGLang]) -> None:
    """Whatever acts on a server goes to the one it is addressed to, and to no other."""
    one, other = servers
    with autospec.Client(one.url, other.url, policy="off") as client:
        flushed = one.server.flushes, other.server.flushes
        client.post("/flush_cache")
        assert (one.server.flushes, other.server.flushes) == (flushed[0] + 1, flushed[1])
        asked = len(other.server.requests)
        client.post(f"{other.url}/generate", json=BODIES[GENERATE])
        assert len(other.server.requests) == asked + 1
        assert client.counters().requests == {"speculative": 0, "plain": 0}
        client.post("/generate", json=BODIES[GENERATE])
        assert client.counters().requests == {"speculative": 0, "plain": 1}


def test_key_goes_to_both_servers_and_nowhere_else() -> None:
    """It takes the place of any other; without one the user's own headers pass."""
    with eagle(api_key="k") as one, plain(api_key="k") as other:
        for policy in ("fixed", "off"):
            with autospec.Client(one.url, other.url, policy=policy, api_key="k") as client:
                given = {"Authorization": "Bearer EMPTY"}
                assert client.post(GENERATE, json={"text": "a"}, headers=given).status_code == 200
                assert client.get(f"{other.url}/v1/models").status_code == 401
            with autospec.Client(one.url, other.url, policy=policy) as client:
                given = {"Authorization": "Bearer k"}
                assert client.post(GENERATE, json={"text": "a"}, headers=given).status_code == 200
                assert client.post(GENERATE, json={"text": "a"}).status_code == 401


@pytest.mark.parametrize("url", ["localhost:30000", "ftp://a", "http://", "http://a?x=1", ""])
def test_addresses_are_checked(url: str) -> None:
    """What is no server's address is refused when the client is made."""
    with pytest.raises(InputError, match="url"):
        autospec.Client(url)
    with pytest.raises(InputError, match="plain_url"):
        autospec.Client("http://a", url)


def test_address_with_a_password_is_refused_without_showing_it() -> None:
    """Keys have an option of their own."""
    with pytest.raises(InputError, match="api_key=") as caught:
        autospec.Client("http://user:secret@host")
    assert "secret" not in str(caught.value)
