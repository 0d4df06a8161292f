"""Routing over real HTTP: acceptance collapses and recovers, and hooks and counters tell of it."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from prometheus_client.parser import text_string_to_metric_families

import autospec
from autospec.client.events import ResponseReport, RoutingDecision
from autospec.errors import RequestError
from tests.client.helpers import DEPTH, IDS, MESSAGES, Told, eagle, measured_profile, plain
from tests.fake_sglang import FakeSGLang

GOOD, BAD = 0.9, 0.05


def test_client_falls_back_when_acceptance_collapses_and_returns_after_it() -> None:
    """With the profile's own policy, from several threads, through OpenAI's API."""
    events: list[RoutingDecision] = []
    with (
        eagle() as one,
        plain() as other,
        autospec.Client(one.url, other.url, profile=measured_profile()) as http,
    ):
        http.on_decision(events.append)
        client = openai.OpenAI(base_url=f"{one.url}/v1", api_key="EMPTY", http_client=http)

        def ask(seed: int) -> None:
            messages: list[ChatCompletionMessageParam] = [
                {"role": "user", "content": f"prompt {seed}"}
            ]
            client.chat.completions.create(model="m", messages=messages)

        one.server.scheduler.skill = GOOD
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(ask, range(60)))
            assert (http.decision.action, http.counters().requests["plain"]) == ("speculative", 0)
            one.server.scheduler.skill = BAD
            list(pool.map(ask, range(60, 160)))
            assert (http.decision.action, http.counters().requests["plain"] > 60) == ("plain", True)
            one.server.scheduler.skill = GOOD
            list(pool.map(ask, range(160, 500)))
        counters = http.counters()
    assert [e.action for e in events if e.action != "probe"] == ["plain", "speculative"]
    assert counters.requests["speculative"] > 60 + 100
    assert counters.probes == sum(event.action == "probe" for event in events) >= 1
    assert (counters.fallbacks, counters.returns, counters.failovers) == (1, 1, 0)


def test_without_a_plain_server_decisions_are_told_and_nothing_moves() -> None:
    """The client observes."""
    policy, events = Told(), list[RoutingDecision]()
    with eagle() as server, autospec.Client(server.url, policy=policy, depth=DEPTH) as client:
        client.on_decision(events.append)
        policy.depth = 0
        assert client.generate(input_ids=IDS).server == "speculative"
        assert client.generate(input_ids=IDS).server == "speculative"
    assert [event.action for event in events] == ["plain"]
    assert all(seen.depth == DEPTH and seen.correct for seen in policy.seen[1:])


def test_server_that_switches_by_itself_is_not_switched_twice() -> None:
    """No policy is asked; a dead server is still gone around."""
    with plain() as other:
        with eagle() as one, autospec.Client(one.url, other.url, engine_switches=True) as client:
            client.generate(input_ids=IDS)
            assert client.decision.reason == "the server switches by itself"
            assert client.counters().verify_steps > 0
            url = one.url
        with autospec.Client(url, other.url, engine_switches=True) as client:
            assert client.generate(input_ids=IDS).server == "plain"


def test_policy_is_shown_what_the_server_said() -> None:
    """Requests in flight, depth, and correct drafts within it."""
    policy = Told()
    with eagle() as server, autospec.Client(server.url, policy=policy, depth=DEPTH) as client:
        answer = client.generate(input_ids=IDS)
    seen = policy.seen[-1]
    assert (seen.batch_size, seen.depth) == (1, DEPTH)
    assert len(seen.correct) == min(16, answer.meta_info["spec_verify_ct"])
    assert set(seen.correct) <= set(range(DEPTH + 1))


def test_response_hook_is_told_of_every_answer() -> None:
    """Who answered, how fast and with what accept length; of no prompt."""
    reports: list[ResponseReport] = []
    with eagle() as one, plain() as other:
        for policy in ("fixed", "off"):
            with autospec.Client(one.url, other.url, policy=policy) as client:
                client.on_response(reports.append)
                client.generate(messages=MESSAGES)
                list(client.stream_generate(input_ids=IDS))
    assert [(r.server, r.streamed, r.status) for r in reports] == [
        ("speculative", False, 200),
        ("speculative", True, 200),
        ("plain", False, 200),
        ("plain", True, 200),
    ]
    assert [r.accept_length is not None for r in reports] == [True, True, False, False]
    assert all(0 < report.first_byte_ms <= report.duration_ms for report in reports)
    assert reports[1].first_byte_ms < reports[1].duration_ms


def test_hook_that_raises_breaks_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor does it keep other hooks from being called; its message, which may quote, is left out."""
    policy, told = Told(), list[str]()
    with (
        eagle() as server,
        autospec.Client(server.url, policy=policy, depth=DEPTH) as client,
        caplog.at_level(logging.WARNING, "autospec.client"),
    ):

        @client.on_response
        def broken(report: ResponseReport) -> None:
            raise ValueError("w4711")

        @client.on_decision
        def broken_too(decision: RoutingDecision) -> None:
            raise KeyError("w4711")

        client.on_response(lambda report: told.append(report.path))
        for depth in (0, DEPTH, 0):
            policy.depth = depth
            assert client.generate(input_ids=IDS).output_ids
        assert client.counters().hook_errors == 6
    assert told == ["/generate"] * 3
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "w4711" not in caplog.text


def test_metrics_are_what_prometheus_reads() -> None:
    """Every counter by its server, with the same numbers as ``counters``."""
    with eagle() as one, plain() as other, autospec.Client(one.url, other.url) as client:
        assert client.counters().accept_length is None
        assert "accept_length" not in client.metrics()
        client.generate(input_ids=IDS)
        text, counters = client.metrics(), client.counters()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert all(family.documentation for family in families.values())
    requests = families["autospec_client_requests"]
    assert requests.type == "counter"
    assert {s.labels["server"]: s.value for s in requests.samples} == counters.requests
    assert families["autospec_client_accept_length"].samples[0].value == pytest.approx(
        counters.accept_length
    )
    assert [s.value for s in families["autospec_client_server_up"].samples] == [1, 1]


def test_many_threads_share_one_client() -> None:
    """Every request is counted once, whole or streamed."""
    with eagle() as one, plain() as other, autospec.Client(one.url, other.url) as client:
        start = threading.Barrier(8)

        def work(seed: int) -> None:
            start.wait(10)
            for number in range(15):
                if number % 2:
                    client.generate(input_ids=[seed, number])
                else:
                    assert list(client.stream_generate(input_ids=[seed, number]))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        counters = client.counters()
    assert counters.requests == {"speculative": 120, "plain": 0}
    assert counters.running == {"speculative": 0, "plain": 0}
    assert counters.unknown == 0


def test_neither_prompt_nor_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong, at any level of autospec's own logger."""

    async def run(url: str, plain_url: str) -> None:
        async with autospec.AsyncClient(url, plain_url, api_key="k-secret") as client:
            await client.generate("my private prompt")
            with pytest.raises(RequestError):
                await client.generate("my private prompt", sampling_params={"wrong": 1})

    caplog.set_level(logging.DEBUG, "autospec")
    with eagle("http500:1,untrue:1") as one, plain() as other:
        asyncio.run(run(one.url, other.url))
    own = [r.getMessage() for r in caplog.records if r.name.startswith("autospec")]
    assert not any("private" in line or "secret" in line for line in own)


def test_addresses_may_have_a_path() -> None:
    """Both servers can stand behind a gateway that tells them apart by a prefix."""
    seen: list[str] = []

    def gateway(request: Any) -> Any:
        seen.append(str(request.url))
        return httpx.Response(200, json={"text": "", "meta_info": {}})

    for policy, prefix in (("fixed", "http://gate/spec"), ("off", "http://other:81/a/plain")):
        client = autospec.Client(
            "http://gate/spec/",
            "http://other:81/a/plain",
            policy=policy,
            transport=httpx.MockTransport(gateway),
        )
        client.generate("a")
        assert seen[-1] == f"{prefix}/generate"
        client.get("http://gate/elsewhere/generate")
        assert seen[-1] == "http://gate/elsewhere/generate"


def test_failing_policy_leaves_a_working_client() -> None:
    """It goes on in plain decoding, and says why."""

    class Broken:
        def decide(self, observation: object) -> Any:
            raise ZeroDivisionError

    with (
        eagle() as one,
        plain() as other,
        autospec.Client(one.url, other.url, policy=Broken(), depth=2) as client,
    ):
        assert client.generate(input_ids=IDS).server == "plain"
        assert "the policy failed" in client.decision.reason


def test_answers_that_tell_nothing_are_counted(fake_server: FakeSGLang) -> None:
    """A server without speculation at the speculative address teaches the policy nothing."""
    policy = Told()
    with autospec.Client(fake_server.url, policy=policy, depth=DEPTH) as client:
        client.generate(input_ids=IDS)
        assert (client.counters().unknown, len(policy.seen)) == (1, 1)
