"""The harness over the real client, against a server that speaks SGLang's HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from autospec import metrics
from autospec.engine.client import EngineClient
from autospec.errors import AutospecError, MeasureError, WorkloadError
from autospec.measure.harness import Harness, PassPlan
from autospec.measure.server import Server
from autospec.measure.split import Parts, split
from autospec.measure.workload import read_workload
from autospec.measurement import Run
from tests.fake_sglang import FakeSGLang

TIMEOUT_S = 60


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """24 prompts of three forms in two classes."""
    path = tmp_path / "traffic.jsonl"
    questions = [f"question number {n} about {n * 7}" for n in range(24)]
    forms = [
        {"text": text}
        if n % 3
        else {"messages": [{"role": "user", "content": text}], "class": "chat"}
        for n, text in enumerate(questions)
    ]
    path.write_text("".join(json.dumps(form) + "\n" for form in forms))
    return split(read_workload(path, default_max_new_tokens=24), 0, max_concurrency=4)


def measure(url: str, parts: Parts) -> tuple[Run, ...]:
    """All passes over the tune part at concurrencies 1 and 4."""

    async def drive() -> tuple[Run, ...]:
        async with EngineClient(url, timeout_s=10) as client:
            server: Server = client
            harness = Harness(server, parts, plan=PassPlan((1, 4), requests_per_pass=8))
            return await asyncio.wait_for(harness.measure("tune"), TIMEOUT_S)

    return asyncio.run(drive())


@pytest.mark.parametrize("algorithm", [None, "NGRAM"])
def test_all_passes_are_made_over_http(parts: Parts, algorithm: str | None) -> None:
    """Every request is answered, timed and counted, and the cache is emptied around warm-ups."""
    with FakeSGLang(speculative_algorithm=algorithm) as fake:
        runs = measure(fake.url, parts)
    assert [(r.repeat, r.concurrency) for r in runs] == [(n, c) for n in range(3) for c in (1, 4)]
    assert fake.server.flushes == 2 * len(runs)
    assert len(fake.server.requests) == sum(8 + 2 * r.concurrency for r in runs)
    for run in runs:
        assert run.output_throughput > 0
        assert run.server is not None
        assert {r.error for r in run.records} == {None}
        assert len({r.prompt for r in run.records}) == 8
        length = metrics.accept_length(run.records)
        assert (length is None) if algorithm is None else (length or 0) > 1
        # This server and its client share an interpreter, so that they wait for each other.
        expected = ("slots were in use", "by the client's clock")
        assert not [line for line in run.warnings if not any(map(line.__contains__, expected))]


@pytest.mark.parametrize(("fault", "error"), [("http500:7", "HTTP 500"), ("cut:9", "connection")])
def test_one_lost_request_leaves_no_figure(parts: Parts, fault: str, error: str) -> None:
    """One refused answer, or one cut off, ends the passes with how many were lost and to what."""
    message = rf"concurrency \d.*: \d of \d+ requests were lost.*{error}"
    with FakeSGLang(fault) as fake, pytest.raises(MeasureError, match=message):
        measure(fake.url, parts)


def test_a_server_that_is_not_there_is_an_error_of_autospec(parts: Parts) -> None:
    """Not a traceback of the HTTP library."""
    with FakeSGLang() as fake:
        url = fake.url
    with pytest.raises(AutospecError):
        measure(url, parts)


def test_a_prompt_longer_than_the_context_is_refused_with_its_line(parts: Parts) -> None:
    """The server's own limit counts."""
    with FakeSGLang(context_length=25) as fake, pytest.raises(WorkloadError, match="line 1: "):
        measure(fake.url, parts)
    assert fake.server.requests == []
