"""The client on a real server: SGLang's own API and OpenAI's, with what each says of drafts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from click.testing import CliRunner

import autospec
from autospec.cli import cli
from autospec.client.events import ResponseReport
from autospec.config import SpecConfig
from tests.cli.test_watch import busy
from tests.client.helpers import Told
from tests.real_engine import serving

pytestmark = pytest.mark.engine

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
DEPTH = 7
MESSAGES = [{"role": "user", "content": "Repeat five times: the cat sat on the mat."}]


@pytest.fixture(scope="module")
def url(demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A speculating server."""
    with serving(demo_model, NGRAM, tmp_path_factory.mktemp("logs") / "c.log") as (server, _):
        yield server.url


def test_generate_tells_of_drafts_whole_and_streamed(url: str) -> None:
    """The policy is shown what SGLang says, and the text is the same either way."""
    policy = Told(DEPTH)
    with autospec.Client(url, policy=policy, depth=DEPTH) as client:
        params = {"max_new_tokens": 48, "temperature": 0}
        whole = client.generate(messages=MESSAGES, sampling_params=params)
        parts = list(client.stream_generate(messages=MESSAGES, sampling_params=params))
        counters = client.counters()
    assert parts[-1].text == whole.text
    assert (whole.accept_length or 0) > 1
    steps = [answer.meta_info["spec_verify_ct"] for answer in (whole, parts[-1])]
    assert counters.verify_steps == sum(steps)
    assert [len(seen.correct) for seen in policy.seen[1:]] == [min(16, n) for n in steps]


@pytest.mark.parametrize("stream", [False, True])
def test_openai_answers_are_those_of_a_direct_request(url: str, stream: bool) -> None:
    """What is asked for besides is read and taken out; nothing but ids and times differs.

    Where a stream is cut depends on what n-gram drafting remembers, so there its events are joined.
    """
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": MESSAGES},
        "/v1/completions": {"prompt": "one two three one two three one two"},
    }
    reports: list[ResponseReport] = []
    with autospec.Client(url) as client, httpx.Client(timeout=60) as direct:
        client.on_response(reports.append)
        for path, prompt in bodies.items():
            body = {**prompt, "model": "m", "max_tokens": 40, "temperature": 0, "stream": stream}
            body |= {"stream_options": {"include_usage": True}} if stream else {}
            ours, theirs = client.post(path, json=body), direct.post(url + path, json=body)
            assert _said(ours.content) == _said(theirs.content)
            assert b"sglext" not in ours.content
    assert all((report.accept_length or 0) > 1 for report in reports)
    assert len(reports) == 2


def test_openai_package_streams_through_the_client(url: str) -> None:
    """In an event loop, several at once."""

    async def ask(client: openai.AsyncOpenAI) -> str:
        chat: Any = client.chat.completions
        stream = await chat.create(
            model="m", messages=MESSAGES, max_tokens=30, temperature=0, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    async def run() -> None:
        async with autospec.AsyncClient(url) as http:
            client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="EMPTY", http_client=http)
            texts = await asyncio.gather(*(ask(client) for _ in range(4)))
            assert all(texts)
            assert (http.counters().unknown, http.counters().requests["speculative"]) == (0, 4)

    asyncio.run(run())


def test_watch_shows_what_the_server_does(url: str) -> None:
    """Its own counts of decode steps, between two looks, while it answers."""
    with busy(url):
        result = CliRunner().invoke(cli, ["watch", url, "--once", "--json", "--interval", "4s"])
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["state"] == "speculating"
    assert document["depth"] == DEPTH
    assert document["server"]["config"].startswith("NGRAM tokens=8")
    assert document["running"] <= 1
    window = document["window"]
    assert window["batch_size"] == 1
    assert window["num_steps"] * window["step_time_ms"] <= 1.5 * 1000 * window["seconds"]
    assert 1 < window["accept_length"] <= DEPTH + 1


def _said(content: bytes) -> tuple[str, list[Any], list[str]]:
    """Text, the answer's end, and the members that events have."""
    lines = content.removesuffix(b"data: [DONE]\n\n").split(b"data: ")
    events: list[dict[str, Any]] = [json.loads(line) for line in lines if line.strip()]
    choices = [choice for event in events for choice in event["choices"]]
    parts = [choice.get("delta") or choice.get("message") or choice for choice in choices]
    text = "".join(part.get("content") or part.get("text") or "" for part in parts)
    end = [choices[-1]["finish_reason"], len(events[-1]["choices"]), events[-1].get("usage")]
    for usage in filter(None, end[2:]):
        usage.pop("prompt_tokens_details", None)
    return text, end, sorted({name for event in events for name in event})
