"""Passes are made as promised, and their figures are what the server did."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from autospec.errors import InputError, MeasureError, WorkloadError
from autospec.measure.harness import Harness, PassPlan, Progress
from autospec.measure.load import ClosedLoop, Poisson
from autospec.measure.prompt import Prompt
from autospec.measure.split import Parts, set_aside, split
from autospec.measure.workload import Workload
from autospec.measurement import DecodeMoments, Request, RequestRecord, Run, Sampling
from tests.measure.virtual import VirtualServer, chat, make_workload, run

PARTS = split(make_workload(40, classes=2), 0, max_concurrency=4)


def harness(server: VirtualServer, *, parts: Parts = PARTS, **plan: Any) -> Harness:
    """A harness at concurrencies 1 and 4 unless told otherwise."""
    settings: dict[str, Any] = {"concurrencies": (1, 4)} | plan
    return Harness(server, parts, plan=PassPlan(**settings))


def failing(chosen: Callable[[Request], bool]) -> VirtualServer:
    """A server that fails the requests chosen."""

    def change(request: Request, record: RequestRecord) -> RequestRecord:
        if not chosen(request):
            return record
        return replace(
            record, chunk_s=(), chunk_tokens=(), completion_tokens=0, error=f"no {request.prompt}"
        )

    return VirtualServer(change=change)


def passes(server: VirtualServer) -> list[list[int]]:
    """The prompts sent between flushes."""
    pieces: list[list[int]] = []
    for call in server.calls:
        if isinstance(call, str):
            pieces.append([])
        else:
            pieces[-1].append(call)
    return pieces


def indices(prompts: tuple[Prompt, ...]) -> list[int]:
    """Their places in the workload."""
    return [prompt.index for prompt in prompts]


def test_a_pass_flushes_warms_up_flushes_and_sends_the_slice() -> None:
    """Two warm-up prompts a slot, over and over; then the prompts of the repeat, each once."""
    server = VirtualServer()
    run(harness(server, requests_per_pass=10).run_pass("tune", 4, repeat=1))
    warmup, measured = passes(server)
    assert len(PARTS.warmup.prompts) == 4
    assert warmup == 2 * indices(PARTS.warmup.prompts)
    assert measured == indices(PARTS.tune.slice(1, 10))
    assert server.most_in_flight == 4


def test_no_measured_prompt_is_ever_used_to_warm_up() -> None:
    """In no pass over either part."""
    server = VirtualServer()
    tool = harness(server)

    async def everything() -> None:
        await tool.measure("tune")
        await tool.measure("confirm")

    run(everything())
    pieces = passes(server)
    warmed = {prompt for piece in pieces[0::2] for prompt in piece}
    measured = {prompt for piece in pieces[1::2] for prompt in piece}
    assert warmed == set(indices(PARTS.warmup.prompts))
    assert measured == set(indices(PARTS.tune.prompts + PARTS.confirm.prompts))


def test_warm_up_answers_are_short_and_measured_ones_are_not() -> None:
    """Warming up is for compiling, not for text; what is measured is what was asked for."""
    server = VirtualServer()
    run(harness(server, warmup_new_tokens=3).measure("tune"))
    assert {n for i in indices(PARTS.warmup.prompts) for n in server.new_tokens[i]} == {1, 2, 3}
    assert {n for i in indices(PARTS.tune.prompts) for n in server.new_tokens[i]} == {8}


def test_repeats_go_round_all_levels_and_progress_is_told() -> None:
    """Repeat 0 at every level, then repeat 1; each pass is reported once it has ended."""
    seen: list[Progress] = []
    runs = run(harness(VirtualServer(), progress=seen.append).measure("confirm"))
    order = [(r.repeat, r.concurrency) for r in runs]
    assert order == [(0, 1), (0, 4), (1, 1), (1, 4), (2, 1), (2, 4)]
    assert {r.part for r in runs} == {"confirm"}
    assert [(p.done, p.total) for p in seen] == [(n, 6) for n in range(1, 7)]
    assert tuple(p.run for p in seen) == runs


def test_passes_end_with_the_repeat_after_which_they_are_enough() -> None:
    """Asked after each repeat at all loads but the last, with every pass so far."""
    asked: list[list[tuple[int, int]]] = []

    def enough(runs: tuple[Run, ...]) -> str:
        asked.append([(made.repeat, made.concurrency) for made in runs])
        return "clear" if len(asked) == 2 else ""

    made = run(harness(VirtualServer(), repeats=5, until=enough).measure("tune"))
    assert asked == [[(0, 1), (0, 4)], [(0, 1), (0, 4), (1, 1), (1, 4)]]
    assert [(each.repeat, each.concurrency) for each in made] == asked[-1]
    asked.clear()
    whole = run(harness(VirtualServer(), until=lambda runs: enough(runs) and "").measure("tune"))
    assert len(whole) == 6
    assert len(asked) == 2


def test_prompts_of_any_part_can_be_asked_for() -> None:
    """Those set aside as well; a part that has none is refused by name."""
    parts = set_aside(PARTS, 0.3, max_concurrency=4)
    asking = harness(VirtualServer(), parts=parts)
    found = run(asking.requests("corpus"))
    assert [request.prompt for request in found] == indices(parts.corpus.prompts)
    assert len(run(asking.requests("confirm", 2))) == 2
    with pytest.raises(WorkloadError, match="'corpus' has no prompts"):
        run(harness(VirtualServer()).requests("corpus"))


def test_a_later_launch_goes_on_with_the_repeats() -> None:
    """Its first pass is numbered, and sends the prompts, after those of the launch before."""
    server = VirtualServer()
    runs = run(harness(server, concurrencies=(4,), first_repeat=3).measure("tune"))
    assert [r.repeat for r in runs] == [3, 4, 5]
    assert passes(server)[1] == indices(PARTS.tune.slice(3, 18))


def test_two_arms_send_the_same_prompts_in_the_same_pass() -> None:
    """Whatever their speed."""
    fast, slow = VirtualServer(step_s=0.01), VirtualServer(step_s=0.3, first_s=1)
    for server in (fast, slow):
        run(harness(server, requests_per_pass=8).measure("tune"))
    assert fast.calls == slow.calls


@pytest.mark.parametrize(
    ("asked", "concurrency", "count"),
    [(None, 1, 18), (None, 4, 18), (5, 1, 5), (5, 4, 8), (1, 1, 2), (100, 4, 18)],
)
def test_a_pass_sends_what_was_asked_but_two_a_slot_at_least(
    asked: int | None, concurrency: int, count: int
) -> None:
    """And at most the whole part."""
    tool = harness(VirtualServer(), requests_per_pass=asked)
    assert len(run(tool.run_pass("tune", concurrency, 0)).records) == count


def test_throughput_is_that_of_the_window_with_all_slots_in_use() -> None:
    """Equal answers of 8 tokens in 0.9 s a slot: from the first start to the first slot left free.

    18 requests at 4 are four full rounds and two requests; the latter are outside.
    """
    measured = run(harness(VirtualServer()).run_pass("tune", 4, 0))
    begin_s, end_s = measured.window_s
    assert end_s - begin_s == pytest.approx(4 * 0.9)
    assert measured.output_throughput == pytest.approx(4 * 8 / 0.9)
    assert measured.duration_s == pytest.approx(5 * 0.9)
    assert measured.warnings == ()


def test_the_servers_own_counts_are_those_of_the_pass_alone() -> None:
    """Warm-up and earlier passes are taken off the cumulative counters."""
    server = VirtualServer()
    measured = run(harness(server).measure("tune"))[-1]
    assert measured.server is not None
    assert measured.server.num_tokens == 18 * 7
    assert measured.server.num_steps == 18 * 7
    assert measured.server.batch_size == pytest.approx(2)
    assert measured.server.step_time_ms == pytest.approx(100)
    silent = VirtualServer(counts_steps=False)
    assert run(harness(silent).run_pass("tune", 1, 0)).server is None


def test_decoding_for_someone_else_is_noticed() -> None:
    """More tokens on the server than were received."""

    def change(request: Request, record: RequestRecord) -> RequestRecord:
        server.foreign_tokens += 5
        return record

    server = VirtualServer(change=change)
    (warning,) = run(harness(server).run_pass("tune", 4, 0)).warnings
    assert "something else used it" in warning


def test_prompts_are_tokenized_once_by_the_server() -> None:
    """Texts as texts, messages through the template, ids not at all."""
    prompts = (
        Prompt(0, 1, 4, text="text"),
        Prompt(1, 2, 4, messages=chat(("system", "s"), ("user", "u"))),
        Prompt(2, 3, 4, input_ids=(5, 6)),
        *(Prompt(i, i + 1, 4, text=f"t{i}") for i in range(3, 8)),
    )
    parts = split(Workload("w", prompts, Sampling(0.5), "0"), 0, max_concurrency=1)
    sent: dict[int, Request] = {}

    def change(request: Request, record: RequestRecord) -> RequestRecord:
        sent[request.prompt] = request
        return record

    server = VirtualServer(change=change)
    run(harness(server, parts=parts, concurrencies=(1,)).measure("tune"))
    assert len(server.tokenized) == 7
    assert server.tokenized[1] == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u"},
    ]
    for index, request in sent.items():
        if prompts[index].input_ids is not None:
            assert request.input_ids == prompts[index].input_ids
        assert request.sampling == Sampling(0.5)
        assert request.max_new_tokens == 4


def test_a_prompt_that_does_not_fit_the_context_is_refused_before_any_pass() -> None:
    """With its file and line, its tokens and the limit; one that just fits is not."""
    long = replace(PARTS.workload.prompts[6], text="x" * 30)
    prompts = (*PARTS.workload.prompts[:6], long, *PARTS.workload.prompts[7:])
    parts = split(replace(PARTS.workload, prompts=prompts), 0, max_concurrency=4)
    server = VirtualServer(max_input_tokens=67)
    message = "traffic.jsonl, line 7: 60 prompt tokens and 8 new ones are 68, the server holds 67"
    with pytest.raises(WorkloadError, match=message):
        run(harness(server, parts=parts).measure("tune"))
    assert server.calls == []
    run(harness(VirtualServer(max_input_tokens=68), parts=parts).render())


def test_prompts_that_are_the_same_to_the_model_are_refused() -> None:
    """A text and its token ids are one prompt."""
    same = replace(
        PARTS.workload.prompts[9], text=None, input_ids=tuple("prompt 0".encode("utf-16-le"))
    )
    prompts = (*PARTS.workload.prompts[:9], same, *PARTS.workload.prompts[10:])
    parts = split(replace(PARTS.workload, prompts=prompts), 0, max_concurrency=4)
    with pytest.raises(WorkloadError, match=r"line 10: same tokens as traffic.jsonl, line 1;"):
        run(harness(VirtualServer(), parts=parts).render())


@pytest.mark.parametrize("place", [0, 9, 17])
def test_a_pass_in_which_one_request_was_lost_has_no_figure(place: int) -> None:
    """It fails with the first error, how many of how many were lost, and how many given up."""
    lost = PARTS.tune.prompts[place].index
    server = failing(lambda request: request.prompt == lost)
    message = f"^tune, concurrency 1, repeat 0: 1 of 18 requests were lost.* with: no {lost}$"
    with pytest.raises(MeasureError, match=message):
        run(harness(server).run_pass("tune", 1, 0))
    assert len(passes(server)[1]) == place + 1, "nothing is sent once a request was lost"


def test_a_server_that_answers_nothing_fails_in_the_warm_up() -> None:
    """Before any measured prompt is sent."""
    server = failing(lambda _: True)
    with pytest.raises(MeasureError, match=r"warm-up, concurrency 4: \d of 8 requests were lost"):
        run(harness(server).run_pass("tune", 4, 0))
    assert set(server.new_tokens) <= set(indices(PARTS.warmup.prompts))


def test_answers_without_a_token_are_no_throughput() -> None:
    """Zero is no figure to compare with."""

    def change(request: Request, record: RequestRecord) -> RequestRecord:
        return replace(record, chunk_s=(), chunk_tokens=(), completion_tokens=0)

    with pytest.raises(MeasureError, match=r"0 tokens in .* s are no throughput"):
        run(harness(VirtualServer(change=change)).run_pass("tune", 4, 0))


def test_parts_too_small_for_the_highest_level_are_refused() -> None:
    """Before anything is sent."""
    with pytest.raises(WorkloadError, match="part tune has 18 prompts, concurrency 10 needs 20"):
        harness(VirtualServer(), concurrencies=(1, 10))


@pytest.mark.parametrize("part", ["warmup", "test"])
def test_other_parts_cannot_be_measured(part: str) -> None:
    """Least of all the warm-up prompts."""
    with pytest.raises(WorkloadError, match="cannot be measured"):
        run(harness(VirtualServer()).measure(part))


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"concurrencies": ()}, "must be numbers from 1"),
        ({"concurrencies": (0, 1)}, "must be numbers from 1"),
        ({"concurrencies": (1, 1)}, "none may be given twice"),
        ({"repeats": 2}, "repeats is 2, must be at least 3"),
        ({"first_repeat": -1}, "first_repeat is -1, must be at least 0"),
        ({"requests_per_pass": 0}, "requests_per_pass is 0"),
        ({"warmup_new_tokens": 0}, "warmup_new_tokens is 0"),
        ({"request_rates": (0.0,)}, "request_rates are .*, must be above 0 and finite"),
        ({"request_rates": (math.inf,)}, "request_rates are .*, must be above 0 and finite"),
        ({"request_rates": (2.0, 2.0)}, "request_rates are .*, none may be given twice"),
    ],
)
def test_a_plan_that_measures_nothing_is_refused(plan: dict[str, Any], message: str) -> None:
    """The error names the setting and its least value."""
    with pytest.raises(InputError, match=message):
        harness(VirtualServer(), **plan)


def test_a_plan_goes_through_levels_and_rates_in_each_repeat() -> None:
    """The arrivals of a repeat are its own, and the same for every server."""
    plan = PassPlan((2,), repeats=3, first_repeat=4, request_rates=(0.5, 3.0))
    assert plan.passes()[:4] == (
        (4, ClosedLoop(2)),
        (4, Poisson(0.5, seed=4)),
        (4, Poisson(3.0, seed=4)),
        (5, ClosedLoop(2)),
    )
    assert len(plan.passes()) == 9


def test_a_pass_at_a_rate_says_its_rate_and_the_most_in_flight() -> None:
    """Answers of 0.9 s at 4 a second: about 4 at once, at their own times in each repeat."""
    plan: dict[str, Any] = {"concurrencies": (), "request_rates": (4.0,)}
    runs = run(harness(VirtualServer(), **plan).measure("tune"))
    assert [r.request_rate for r in runs] == [4.0] * 3
    assert all(2 <= r.concurrency <= 12 for r in runs)
    assert len({r.duration_s for r in runs}) == 3
    again = run(harness(VirtualServer(), **plan).run_rate_pass("tune", 4.0, 1))
    assert again.duration_s == pytest.approx(runs[1].duration_s)
    assert [r.prompt for r in again.records] == [r.prompt for r in runs[1].records]


def test_more_requests_at_once_than_the_server_decodes_are_refused() -> None:
    """Before anything is sent: the queue would be measured."""
    server = VirtualServer(max_running_requests=3)
    message = "concurrency 4: the server decodes 3 requests at once"
    with pytest.raises(MeasureError, match=message):
        run(harness(server).measure("tune"))
    assert server.calls == []
    one = harness(server, concurrencies=(1,))
    run(one.run_pass("tune", 1, 0))
    with pytest.raises(MeasureError, match=message):
        run(one.run_pass("tune", 4, 0))


def test_the_last_steps_are_counted_before_the_counters_are_read() -> None:
    """A server that still has requests when it is asked is asked again."""

    class Late(VirtualServer):
        answers = 0

        async def decode_moments(self) -> DecodeMoments | None:
            moments = await super().decode_moments()
            self.answers += 1
            if moments is None or self.answers % 3 == 0:
                return moments
            return replace(moments, num_steps=moments.num_steps - 1, num_unfinished=1)

    measured = run(harness(Late()).run_pass("tune", 4, 0))
    assert measured.server is not None
    assert measured.server.num_steps == 18 * 7
