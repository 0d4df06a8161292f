"""Nothing leaks into a figure: each test fails when the guard that it is about is taken away.

Where a leak can be made, a second test takes the guard away and sees that the leak is there, so
that the first does not pass for want of anything to leak.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autospec import metrics
from autospec.engine import wire
from autospec.engine.client import EngineClient
from autospec.errors import WorkloadError
from autospec.measure import checks
from autospec.measure.harness import Harness, PassPlan
from autospec.measure.server import Server
from autospec.measure.split import Part, Parts, split
from autospec.measure.workload import read_workload
from autospec.measurement import Request, RequestRecord, Run
from tests.fake_sglang import FakeSGLang
from tests.measure.virtual import VirtualServer, make_workload, run

TIMEOUT_S = 60
#: Ten prompts each to tune and to confirm: every pass of ten sends all of its part.
COUNT = 10
VIRTUAL = split(make_workload(2 * COUNT + 2), 0, max_concurrency=4)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """Prompts that begin differently, so that none shares its prefix with another."""
    path = tmp_path / "traffic.jsonl"
    texts = [f"{n} asks about {n * 7} and also {n * 11}" for n in range(2 * COUNT + 2)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return split(read_workload(path, default_max_new_tokens=40), 0, max_concurrency=2)


class Unflushed(EngineClient):
    """A client whose flush does nothing."""

    async def flush(self, timeout_s: float = 30.0) -> None:
        """Leave everything as it is."""


def measured(
    fake: FakeSGLang, parts: Parts, client_type: type[EngineClient] = EngineClient
) -> tuple[Run, ...]:
    """Three passes at concurrency 2 over the same prompts."""

    async def drive() -> tuple[Run, ...]:
        async with client_type(fake.url, timeout_s=10) as client:
            server: Server = client
            harness = Harness(server, parts, plan=PassPlan((2,)))
            return await asyncio.wait_for(harness.measure("tune"), TIMEOUT_S)

    return asyncio.run(drive())


def accept_lengths(runs: tuple[Run, ...]) -> list[float]:
    """One a pass."""
    return [metrics.accept_length(run.records) or 0.0 for run in runs]


# Repeated prompts against the n-gram memory.


def test_a_prompt_that_comes_again_is_drafted_for_as_the_first_time(parts: Parts) -> None:
    """The n-gram memory is emptied before each pass, and no pass sends a prompt twice."""
    with FakeSGLang(speculative_algorithm="NGRAM") as fake:
        runs = measured(fake, parts)
    lengths = accept_lengths(runs)
    assert lengths == [lengths[0]] * 3
    for made in runs:
        assert len({record.prompt for record in made.records}) == len(made.records) == COUNT
    assert not [line for line in checks.pass_warnings(runs) if "remembers" in line]


def test_without_the_flush_the_memory_leaks_and_is_noticed(parts: Parts) -> None:
    """Drafts for answers that the server remembers are nearly all right."""
    with FakeSGLang(speculative_algorithm="NGRAM") as fake:
        runs = measured(fake, parts, Unflushed)
    first, *later = accept_lengths(runs)
    assert min(later) > 1.5 * first
    assert [line for line in checks.pass_warnings(runs) if "remembers" in line]


# Warm-up prompts inside the measured part.


@pytest.mark.parametrize("name", ["tune", "confirm"])
def test_parts_that_share_a_prompt_with_the_warm_up_are_refused(name: str) -> None:
    """Before anything is sent, with the prompt's place."""
    part = VIRTUAL.tune if name == "tune" else VIRTUAL.confirm
    shared = Part(name, (*part.prompts[1:], VIRTUAL.warmup.prompts[0]))
    leaking = replace(VIRTUAL, **{name: shared})  # type: ignore[arg-type]  # one of two fields
    line = VIRTUAL.warmup.prompts[0].line
    message = f"traffic.jsonl, line {line}: is in part warmup and again in {name}, must be in one"
    with pytest.raises(WorkloadError, match=message):
        Harness(VirtualServer(), leaking, plan=PassPlan((4,)))


def test_a_prompt_twice_in_a_part_is_refused() -> None:
    """A pass would send it twice."""
    twice = Part("tune", (*VIRTUAL.tune.prompts, VIRTUAL.tune.prompts[0]))
    with pytest.raises(WorkloadError, match="is in part tune and again in tune"):
        Harness(VirtualServer(), replace(VIRTUAL, tune=twice), plan=PassPlan((4,)))


def test_a_warm_up_prompt_that_is_another_to_the_file_but_not_to_the_model_is_refused() -> None:
    """The same tokens under another number are the same prompt."""
    copied = VIRTUAL.warmup.prompts[0].text
    prompts = tuple(
        replace(prompt, text=copied) if prompt == VIRTUAL.tune.prompts[3] else prompt
        for prompt in VIRTUAL.workload.prompts
    )
    parts = replace(VIRTUAL, workload=replace(VIRTUAL.workload, prompts=prompts))
    with pytest.raises(WorkloadError, match="same tokens as"):
        run(Harness(VirtualServer(), parts, plan=PassPlan((4,))).run_pass("tune", 4, 0))


# Prefix-cache reuse between passes and arms.


def test_no_pass_finds_its_prompts_in_the_prefix_cache(parts: Parts) -> None:
    """The cache is emptied before each pass, whoever filled it."""
    with FakeSGLang() as fake:
        runs = measured(fake, parts)
    assert {record.cached_tokens for made in runs for record in made.records} == {0}


def test_without_the_flush_the_prefix_cache_leaks_and_is_noticed(parts: Parts) -> None:
    """From the second pass on every prompt is in it."""
    with FakeSGLang() as fake:
        first, *later = measured(fake, parts, Unflushed)
    assert not [line for line in first.warnings if "prefix cache" in line]
    for made in later:
        assert f"{COUNT} of {COUNT} requests found more of their prompt" in str(made.warnings)


def test_a_server_whose_flush_keeps_the_cache_is_noticed() -> None:
    """Even though it was asked to forget."""
    harness = Harness(VirtualServer(forgets=False), VIRTUAL, plan=PassPlan((4,)))
    _, *later = run(harness.measure("tune"))
    for made in later:
        assert f"{COUNT} of {COUNT} requests found more of their prompt" in str(made.warnings)


# ignore_eos on.


def test_answers_end_by_themselves_whatever_the_server_prefers(parts: Parts) -> None:
    """A server's preferred sampling parameters hold only for what a request does not say."""
    with FakeSGLang(preferred_sampling_params={"ignore_eos": True}) as fake:
        runs = measured(fake, parts)
        told = {body["sampling_params"].get("ignore_eos") for body in fake.server.requests}
    assert {record.finish_reason for made in runs for record in made.records} == {"stop"}
    assert told == {False}


def test_answers_that_never_end_by_themselves_are_noticed() -> None:
    """As of a server by URL that goes on past the end of text."""
    server = VirtualServer(change=lambda _, record: replace(record, finish_reason="length"))
    made = run(Harness(server, VIRTUAL, plan=PassPlan((4,))).run_pass("tune", 4, 0))
    assert "none of 10 answers ended by itself" in str(made.warnings)


# Health checks and other traffic counted.


def test_no_health_check_is_asked_for_while_passes_are_made(parts: Parts) -> None:
    """SGLang's health checks generate a token; what is asked of the server is known."""
    with FakeSGLang() as fake:
        measured(fake, parts)
        paths = set(fake.server.paths)
    assert paths == {
        "/server_info",
        "/v1/tokenize",
        "/flush_cache",
        "/generate",
        "/v1/loads",
    }


@pytest.mark.parametrize(
    ("disturb", "what"),
    [
        (lambda server: setattr(server, "foreign_tokens", server.foreign_tokens + 9), "decoded"),
        (
            lambda server: setattr(
                server, "foreign_prompt_tokens", server.foreign_prompt_tokens + 1
            ),
            "computed",
        ),
    ],
    ids=["long-answers", "answers-of-one-token"],
)
def test_requests_of_others_in_a_pass_are_noticed(
    disturb: Callable[[VirtualServer], None], what: str
) -> None:
    """By their tokens, or by their prompts where one token is all they ask for."""

    def change(_: Request, record: RequestRecord) -> RequestRecord:
        disturb(server)
        return record

    server = VirtualServer(change=change)
    made = run(Harness(server, VIRTUAL, plan=PassPlan((4,))).run_pass("tune", 4, 0))
    (warning,) = made.warnings
    assert f"the server {what}" in warning
    assert "something else used it" in warning


# First-request compile time counted.


def pass_of(server: VirtualServer, warmup_new_tokens: int = 32) -> Run:
    """One pass at 4."""
    plan = PassPlan((4,), warmup_new_tokens=warmup_new_tokens)
    return run(Harness(server, VIRTUAL, plan=plan).run_pass("tune", 4, 0))


def test_no_measured_request_waits_for_a_first_step_of_its_batch_size() -> None:
    """The warm-up goes through every batch size up to the concurrency and down to one."""
    slow, quick = pass_of(VirtualServer(compile_s=50.0)), pass_of(VirtualServer())
    assert slow.duration_s == pytest.approx(quick.duration_s)
    assert slow.output_throughput == pytest.approx(quick.output_throughput)


def test_without_the_warm_up_first_steps_are_measured() -> None:
    """So the test above has something to guard against."""

    class Cold(VirtualServer):
        async def flush(self) -> None:
            await super().flush()
            self._compiled.clear()

    assert pass_of(Cold(compile_s=50.0)).duration_s > pass_of(VirtualServer()).duration_s + 40


# Admission limits that differ between arms.


def test_arms_that_admit_different_loads_are_told() -> None:
    """As when SGLang lowers a speculative server's limit and leaves a plain one's."""
    with FakeSGLang() as plain, FakeSGLang(speculative_algorithm="NGRAM") as drafting:
        a, b = (asyncio.run(resolved(fake.url)) for fake in (plain, drafting))
    (line,) = checks.unequal_limits(a, b)
    assert line.startswith("max_running_requests is 2048 on one server and 48 on the other")
    assert checks.unequal_limits(a, a) == ()


async def resolved(url: str) -> dict[str, wire.Scalar]:
    """Settings as the server resolved them."""
    async with EngineClient(url, timeout_s=10) as client:
        return (await client.server_info()).resolved


# Time that the server did not take.


def test_a_slow_way_back_is_noticed() -> None:
    """Answers of 0.9 s that arrive 30 ms late: the client's throughput is not the server's."""
    assert pass_of(VirtualServer()).warnings == ()
    (warning,) = pass_of(VirtualServer(delivery_s=0.03)).warnings
    assert "0.030 s a request lie between them" in warning
