"""The lossless check over HTTP: the client's part of it, and the whole on fake servers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from autospec.engine import wire
from autospec.engine.client import EngineClient
from autospec.errors import MeasureError, WireError
from autospec.fidelity import Lossless
from autospec.measure.lossless import Answers, check, collect
from autospec.measurement import Request, Sampling
from tests.fake_sglang import FakeSGLang

NUM_PROMPTS = 16
REQUESTS = [
    Request(at, (11 + at, 20, 30), 40, sampling=Sampling(temperature=0.8))
    for at in range(NUM_PROMPTS)
]


def payload(tops: Any) -> bytes:
    """An answer of one token with what stands under the log-probabilities' key."""
    return json.dumps({"output_ids": [7], "meta_info": {"output_top_logprobs": tops}}).encode()


def collected(url: str) -> Answers:
    """The greedy answers of a server."""

    async def story() -> Answers:
        async with EngineClient(url) as client:
            return await collect(client, REQUESTS, 8)

    return asyncio.run(story())


def checked(faults: str) -> Lossless:
    """The check of a speculating server with such faults, in three launches."""
    with FakeSGLang(step_s=0.0005) as plain:
        first = collected(plain.url)
    with FakeSGLang(faults, step_s=0.0005, speculative_algorithm="NGRAM") as server:
        candidate = collected(server.url)
        assert {body["sampling_params"]["temperature"] for body in server.server.requests} == {0}
        assert server.server.flushes == 1

    async def story(url: str) -> Lossless:
        async with EngineClient(url) as client:
            return await check(client, REQUESTS, first, candidate, 8)

    with FakeSGLang(step_s=0.0005) as plain:
        return asyncio.run(story(plain.url))


def test_a_faithful_server_is_identical() -> None:
    """Speculation that only drafts changes no answer."""
    result = checked("")
    assert result.decision == "identical"
    assert (result.candidate.identical, result.control.identical) == (NUM_PROMPTS, NUM_PROMPTS)


def test_a_server_that_accepts_wrong_drafts_differs() -> None:
    """Tokens that plain decoding finds far less likely give it away, a few are enough."""
    result = checked("lossy:4")
    assert result.decision == "differs"
    assert (result.candidate.wide, result.candidate.near_ties) == (4, 0)
    assert result.candidate.identical_share == 0.75
    assert result.candidate.positions is not None
    assert result.control.identical_share == 1


def test_a_server_that_flips_near_ties_is_like_plain() -> None:
    """Rounding may decide otherwise in any number of answers."""
    result = checked("tied:1")
    assert result.decision == "like plain"
    assert (result.candidate.near_ties, result.candidate.wide) == (NUM_PROMPTS, 0)
    assert result.candidate.widest == pytest.approx(0.1)


def test_a_failing_server_gives_no_answers() -> None:
    """A refused request ends the check with its reason."""
    with (
        FakeSGLang("http500:5") as server,
        pytest.raises(MeasureError, match=r"of 16 greedy answers were lost.*HTTP 500"),
    ):
        collected(server.url)


def test_the_likeliest_tokens_come_with_their_log_probabilities(fake_server: FakeSGLang) -> None:
    """Greedily and for one token, nothing of the prompt is asked for."""

    async def story() -> tuple[tuple[int, float], ...]:
        async with EngineClient(fake_server.url) as client:
            return await client.next_logprobs((5, 6, 7), top=3)

    found = asyncio.run(story())

    assert len(found) == 3
    assert [logprob for _, logprob in found] == sorted((p for _, p in found), reverse=True)
    (body,) = fake_server.server.requests
    assert body["input_ids"] == [5, 6, 7]
    assert body["sampling_params"] == {"max_new_tokens": 1, "temperature": 0.0}
    assert (body["return_logprob"], body["top_logprobs_num"]) == (True, 3)


def test_log_probabilities_are_sorted_and_whole_ones_taken() -> None:
    """JSON may write -1.0 as -1, and no order is promised."""
    tops = [[[-2.5, 8, None], [-1, 9, None], [-2.0, 7, "text"]]]
    assert wire.read_next_logprobs(payload(tops)) == ((9, -1.0), (7, -2.0), (8, -2.5))


@pytest.mark.parametrize(
    ("tops", "complaint"),
    [
        ([], "must be of one token"),
        ([None], "must be of one token"),
        ([[]], "must be of one token"),
        ([[[-1.0, 2, None]], [[-1.0, 2, None]]], "must be of one token"),
        ([[-1.0]], "must be lists of log-probability, token and text"),
        ([[[-1.0]]], "must be lists of log-probability, token and text"),
        ([[["-1.0", 2, None]]], "must be a list of float numbers"),
        ([[[None, 2, None]]], "must be a list of float numbers"),
        ([[[-1.0, 2.5, None]]], "must be a list of int numbers"),
        (None, "output_top_logprobs must be list, is NoneType"),
    ],
)
def test_other_log_probabilities_are_refused(tops: Any, complaint: str) -> None:
    """Whatever SGLang would not send is an error that says where it stood."""
    with pytest.raises(WireError, match=f"^/generate: meta_info.*{complaint}"):
        wire.read_next_logprobs(payload(tops))


def test_an_answer_without_log_probabilities_is_refused() -> None:
    """A server that ignored the question is found out."""
    with pytest.raises(WireError, match="key 'output_top_logprobs' is missing"):
        wire.read_next_logprobs(b'{"output_ids": [7], "meta_info": {}}')
