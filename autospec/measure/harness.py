"""Passes over a running server: all concurrency levels and repeats from one launch.

One pass is: flush, warm up, flush, send the part's prompts in a closed loop, keep the stretch with
the full concurrency in flight. Nothing that a pass measures was ever sent to warm up, and nothing
that one pass left behind in the server's memory is there in the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autospec import metrics
from autospec.errors import InputError, MeasureError, WorkloadError
from autospec.measure import checks
from autospec.measure.load import Load, run_closed_loop
from autospec.measure.prompt import Prompt
from autospec.measure.server import Server
from autospec.measure.split import Parts
from autospec.measurement import DecodeMoments, Request, RequestRecord, Run, ServerDelta

__all__ = ["Harness", "PassPlan", "Progress"]

#: A pass in which more than this share of the requests failed yields no figure.
MAX_FAILED_SHARE: Final = 0.5
_LEAST: Final = {"repeats": 3, "first_repeat": 0, "requests_per_pass": 1, "warmup_new_tokens": 1}


@dataclass(frozen=True, slots=True)
class Progress:
    """One pass has ended: it was number ``done`` of ``total``."""

    run: Run
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class PassPlan:
    """Which passes are made over one part.

    Attributes:
        concurrencies: requests kept in flight, one level after the other.
        repeats: passes at each level; fewer than 3 show no spread.
        first_repeat: number of the first of them, where an earlier launch made those before.
        requests_per_pass: requests a pass, the whole part by default; a level gets at least two
            a slot, or it would have no stretch with the full concurrency.
        warmup_new_tokens: longest answer to a warm-up prompt. Its purpose is that everything was
            compiled and every batch size was seen once.
        progress: called after each pass.

    Raises:
        InputError: a number below its least value, or a level given twice.
    """

    concurrencies: tuple[int, ...]
    repeats: int = 3
    first_repeat: int = 0
    requests_per_pass: int | None = None
    warmup_new_tokens: int = 32
    progress: Callable[[Progress], None] | None = None

    def __post_init__(self) -> None:
        if not self.concurrencies or min(self.concurrencies) < 1:
            raise InputError(f"concurrencies are {self.concurrencies}, must be numbers from 1")
        if len(set(self.concurrencies)) < len(self.concurrencies):
            raise InputError(f"concurrencies are {self.concurrencies}, none may be given twice")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} is {value}, must be at least {least}")

    def passes(self) -> tuple[tuple[int, int], ...]:
        """(repeat, concurrency) of each pass in order; slow drift meets all levels alike."""
        repeats = range(self.first_repeat, self.first_repeat + self.repeats)
        return tuple((repeat, level) for repeat in repeats for level in self.concurrencies)

    def requests(self, concurrency: int, available: int) -> int:
        """Number of requests of one pass over a part of ``available`` prompts."""
        asked = self.requests_per_pass or available
        return min(available, max(asked, 2 * concurrency))


class Harness:
    """Measures one running server on the parts of one workload.

    Args:
        server: the running engine.
        parts: the split workload.
        plan: which passes to make.

    Raises:
        WorkloadError: a part has fewer than two prompts a slot of the highest concurrency.
    """

    def __init__(self, server: Server, parts: Parts, *, plan: PassPlan) -> None:
        least = 2 * max(plan.concurrencies)
        for part in (parts.tune, parts.confirm):
            if len(part.prompts) < least:
                raise WorkloadError(
                    f"{parts.workload.name}: part {part.name} has {len(part.prompts)} prompts,"
                    f" concurrency {max(plan.concurrencies)} needs {least}"
                )
        self._server = server
        self._parts = parts
        self._plan = plan
        self._requests: dict[int, Request] = {}

    async def render(self) -> None:
        """Turn every prompt into token ids, once, by the server's own tokenizer.

        Raises:
            WorkloadError: a prompt that does not fit the context with its answer, or two that are
                the same to the model; with file, line and numbers of tokens.
        """
        workload = self._parts.workload
        # An answer beyond this would be cut silently, at a place that depends on the reserve.
        limit = (await self._server.server_info()).max_input_tokens
        places: dict[tuple[int, ...], str] = {}
        for prompt in workload.prompts:
            input_ids, place = await self._tokenize(prompt), workload.place(prompt)
            asked = len(input_ids) + prompt.max_new_tokens
            if asked > limit:
                raise WorkloadError(
                    f"{place}: {len(input_ids)} prompt tokens and {prompt.max_new_tokens} new ones"
                    f" are {asked}, the server holds {limit}"
                )
            if input_ids in places:
                raise WorkloadError(f"{place}: same tokens as {places[input_ids]}; leave one out")
            places[input_ids] = place
            self._requests[prompt.index] = Request(
                prompt=prompt.index,
                input_ids=input_ids,
                max_new_tokens=prompt.max_new_tokens,
                label=prompt.label,
                sampling=workload.sampling,
            )

    async def measure(self, part: str) -> tuple[Run, ...]:
        """Make all passes of the plan over ``tune`` or ``confirm``, in the order made.

        Raises:
            WorkloadError: no such part, or a prompt that cannot be sent.
            MeasureError: a pass yielded nothing that can be trusted.
        """
        passes = self._plan.passes()
        runs: list[Run] = []
        for repeat, concurrency in passes:
            runs.append(await self.run_pass(part, concurrency, repeat))
            if self._plan.progress is not None:
                self._plan.progress(Progress(runs[-1], done=len(runs), total=len(passes)))
        return tuple(runs)

    async def run_pass(self, part: str, concurrency: int, repeat: int) -> Run:
        """Make one pass. The same part, concurrency and repeat send the same prompts to any server.

        Raises:
            WorkloadError: no such part, or a prompt that cannot be sent.
            MeasureError: most requests failed, or no token arrived.
        """
        source = self._parts.named(part)
        if not self._requests:
            await self.render()
        count = self._plan.requests(concurrency, len(source.prompts))
        requests = [self._requests[prompt.index] for prompt in source.slice(repeat, count)]
        await self._server.flush()
        await self._warm_up(concurrency)
        await self._server.flush()
        before = await self._server.decode_moments()
        load = await run_closed_loop(self._server.generate, requests, concurrency)
        after = await self._server.decode_moments()
        _require_answers(load.records, f"{part}, concurrency {concurrency}, repeat {repeat}")
        run = _summarize(load, part, concurrency, repeat)
        run = replace(run, server=_delta(before, after))
        return replace(run, warnings=run.warnings + checks.warnings_of(run, requests))

    async def _tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        if prompt.input_ids is not None:
            return prompt.input_ids
        if prompt.messages is None:
            return tuple(await self._server.tokenize(text=prompt.text))
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
        return tuple(await self._server.tokenize(messages=turns))

    async def _warm_up(self, concurrency: int) -> None:
        """Two warm-up prompts a slot, the few there are over and over."""
        sources = [self._requests[prompt.index] for prompt in self._parts.warmup.prompts]
        longest = self._plan.warmup_new_tokens
        short = [replace(r, max_new_tokens=min(r.max_new_tokens, longest)) for r in sources]
        requests = [short[place % len(short)] for place in range(2 * concurrency)]
        load = await run_closed_loop(self._server.generate, requests, concurrency)
        _require_answers(load.records, f"warm-up, concurrency {concurrency}")


def _require_answers(records: Sequence[RequestRecord], what: str) -> None:
    failed = [record.error for record in records if record.error is not None]
    if len(failed) > MAX_FAILED_SHARE * len(records):
        raise MeasureError(
            f"{what}: {len(failed)} of {len(records)} requests failed,"
            f" the first with: {checks.one_line(failed[0])}"
        )


def _summarize(load: Load, part: str, concurrency: int, repeat: int) -> Run:
    records, warnings = load.records, []
    window = metrics.steady_window(records, concurrency)
    if window is None or not metrics.tokens_in_window(records, window):
        whole = min(record.start_s for record in records), max(r.end_s for r in records)
        window = whole
        warnings.append(
            f"no answer came while {concurrency} requests were in flight: the whole pass counts,"
            " its start and end too"
        )
    tokens, length_s = metrics.tokens_in_window(records, window), window[1] - window[0]
    if not tokens or length_s <= 0:
        raise MeasureError(
            f"{part}, concurrency {concurrency}, repeat {repeat}: {tokens} tokens in"
            f" {length_s:.3f} s are no throughput"
        )
    return Run(
        part=part,
        concurrency=concurrency,
        repeat=repeat,
        output_throughput=tokens / length_s,
        window_s=window,
        duration_s=load.duration_s,
        records=records,
        client_busy_share=load.busy_share,
        warnings=tuple(warnings),
    )


def _delta(before: DecodeMoments | None, after: DecodeMoments | None) -> ServerDelta | None:
    """What the server did between two readings; a first reading of None is a fresh server's."""
    before = before or DecodeMoments(0, 0.0, 0.0, 0.0)
    if after is None or after.num_steps <= before.num_steps:
        return None
    steps = after.num_steps - before.num_steps
    return ServerDelta(
        num_steps=steps,
        batch_size=(after.sum_batch_size - before.sum_batch_size) / steps,
        step_time_ms=(after.sum_step_us - before.sum_step_us) / steps / 1000,
        num_tokens=round(after.sum_tokens - before.sum_tokens),
    )
