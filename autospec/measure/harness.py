"""Passes over a running server: all loads and repeats from one launch.

One pass is: flush, warm up, flush, send the part's prompts, keep the stretch in which the load is
the one asked for. Nothing that a pass measures was ever sent to warm up, and nothing that one pass
left behind in the server's memory is there in the next. A pass in which one request was lost has no
figure.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from autospec.errors import InputError, MeasureError, WorkloadError
from autospec.measure import checks
from autospec.measure.load import Arrival, ClosedLoop, Poisson, run_load
from autospec.measure.prompt import Prompt
from autospec.measure.server import Server
from autospec.measure.split import Part, Parts
from autospec.measure.summary import server_delta, summarize
from autospec.measurement import DecodeMoments, Request, Run

__all__ = ["Harness", "PassPlan", "Progress", "Until"]

#: Asked after each repeat with the passes so far: why no further one is needed, or nothing.
Until = Callable[[tuple[Run, ...]], str]

_LEAST: Final = {"repeats": 3, "first_repeat": 0, "requests_per_pass": 1, "warmup_new_tokens": 1}
#: Batch sizes that the warm-up of a pass at a rate goes through, if no closed loop needs more.
OPEN_WARMUP: Final = 8
#: The server's counters are read once it has noticed that it is idle: after this at the latest, s.
SETTLE_S: Final = 2.0
_POLL_S: Final = 0.02


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
        request_rates: requests/s arriving at random, one rate after the other, after the levels.
        until: asked after each repeat but the last whether the passes so far are enough.

    Raises:
        InputError: a number below its least value, a level or rate given twice, or none at all.
    """

    concurrencies: tuple[int, ...] = ()
    repeats: int = 3
    first_repeat: int = 0
    requests_per_pass: int | None = None
    warmup_new_tokens: int = 32
    progress: Callable[[Progress], None] | None = None
    request_rates: tuple[float, ...] = ()
    until: Until | None = None

    def __post_init__(self) -> None:
        if min(self.concurrencies, default=1) < 1 or not self.concurrencies + self.request_rates:
            raise InputError(f"concurrencies are {self.concurrencies}, must be numbers from 1")
        if not all(0 < rate < math.inf for rate in self.request_rates):
            raise InputError(f"request_rates are {self.request_rates}, must be above 0 and finite")
        for name in ("concurrencies", "request_rates"):
            values = getattr(self, name)
            if len(set(values)) < len(values):
                raise InputError(f"{name} are {values}, none may be given twice")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} is {value}, must be at least {least}")

    @property
    def max_concurrency(self) -> int:
        """The most requests that a closed loop keeps in flight; 1 where all arrive at a rate."""
        return max(self.concurrencies, default=1)

    def passes(self) -> tuple[tuple[int, Arrival], ...]:
        """(repeat, arrival) of each pass in order; slow drift meets all loads alike."""
        passes: list[tuple[int, Arrival]] = []
        for repeat in range(self.first_repeat, self.first_repeat + self.repeats):
            passes += [(repeat, ClosedLoop(level)) for level in self.concurrencies]
            passes += [(repeat, Poisson(rate, seed=repeat)) for rate in self.request_rates]
        return tuple(passes)

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
        WorkloadError: a part has fewer than two prompts a slot of the highest concurrency, or a
            prompt is in two parts or twice in one.
    """

    def __init__(self, server: Server, parts: Parts, *, plan: PassPlan) -> None:
        least = 2 * plan.max_concurrency
        for part in (parts.tune, parts.confirm):
            if len(part.prompts) < least:
                raise WorkloadError(
                    f"{parts.workload.name}: part {part.name} has {len(part.prompts)} prompts,"
                    f" concurrency {plan.max_concurrency} needs {least}"
                )
        _require_disjoint(parts)
        self._server = server
        self._parts = parts
        self._plan = plan
        self._requests: dict[int, Request] = {}
        self._max_running = 0

    async def render(self) -> None:
        """Turn every prompt into token ids, once, by the server's own tokenizer.

        Raises:
            WorkloadError: a prompt that does not fit the context with its answer, or two that are
                the same to the model; with file, line and numbers of tokens.
            MeasureError: the server decodes fewer requests at once than a pass keeps in flight.
        """
        workload = self._parts.workload
        info = await self._server.server_info()
        # An answer beyond this would be cut silently, at a place that depends on the reserve.
        limit, self._max_running = info.max_input_tokens, info.max_running_requests
        self._require_admitted(self._plan.max_concurrency)
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
        """Make the passes of the plan over ``tune`` or ``confirm``; gives them in the order made.

        Raises:
            WorkloadError: no such part, or a prompt that cannot be sent.
            MeasureError: a pass yielded nothing that can be trusted.
        """
        passes = self._plan.passes()
        runs: list[Run] = []
        for repeat, arrival in passes:
            runs.append(await self._pass(part, arrival, repeat))
            if self._plan.progress is not None:
                self._plan.progress(Progress(runs[-1], done=len(runs), total=len(passes)))
            if self._enough(tuple(runs)):
                break
        return tuple(runs)

    async def run_pass(self, part: str, concurrency: int, repeat: int) -> Run:
        """Make one pass. The same part, concurrency and repeat send the same prompts to any server.

        Raises:
            WorkloadError: no such part, or a prompt that cannot be sent.
            MeasureError: a request was lost, no token arrived, the client was too slow, or the
                server decodes fewer requests at once.
        """
        return await self._pass(part, ClosedLoop(concurrency), repeat)

    async def run_rate_pass(self, part: str, request_rate: float, repeat: int) -> Run:
        """Make one pass with arrivals at random at a rate, at the same times for the same repeat.

        Args:
            part: ``tune`` or ``confirm``.
            request_rate: requests/s.
            repeat: number of the pass.

        Raises:
            WorkloadError: no such part, or a prompt that cannot be sent.
            MeasureError: a request was lost, no token arrived, or the client was too slow.
        """
        return await self._pass(part, Poisson(request_rate, seed=repeat), repeat)

    async def _pass(self, part: str, arrival: Arrival, repeat: int) -> Run:
        source = self._parts.named(part)
        if not self._requests:
            await self.render()
        slots = arrival.concurrency if isinstance(arrival, ClosedLoop) else 1
        self._require_admitted(slots)
        warmed = slots
        if isinstance(arrival, Poisson):
            warmed = min(self._max_running, max(OPEN_WARMUP, self._plan.max_concurrency))
        count = self._plan.requests(slots, len(source.prompts))
        requests = [self._requests[prompt.index] for prompt in source.slice(repeat, count)]
        await self._server.flush()
        await self._warm_up(warmed)
        await self._server.flush()
        before = await self._moments()
        load = await run_load(self._server.generate, requests, arrival)
        run = summarize(load, part, arrival, repeat)
        run = replace(run, server=server_delta(before, await self._moments()))
        found = checks.warnings_of(run, requests, warmed=warmed)
        return replace(run, warnings=run.warnings + found)

    async def requests(self, part: str, count: int | None = None) -> tuple[Request, ...]:
        """The first ``count`` prompts of a part, or all, as they go to the server; of any part.

        Raises:
            WorkloadError: no such part, or a prompt that cannot be sent.
        """
        source = next((p for p in self._parts.all if p.name == part), None)
        if source is None:
            raise WorkloadError(f"part {part!r} has no prompts to ask for")
        if not self._requests:
            await self.render()
        return tuple(self._requests[prompt.index] for prompt in source.prompts[:count])

    def _enough(self, runs: tuple[Run, ...]) -> bool:
        loads = len(self._plan.concurrencies) + len(self._plan.request_rates)
        ends_repeat = len(runs) % loads == 0 and len(runs) < loads * self._plan.repeats
        return self._plan.until is not None and ends_repeat and bool(self._plan.until(runs))

    async def _tokenize(self, prompt: Prompt) -> tuple[int, ...]:
        if prompt.input_ids is not None:
            return prompt.input_ids
        if prompt.messages is None:
            return tuple(await self._server.tokenize(text=prompt.text))
        turns = [{"role": turn.role, "content": turn.content} for turn in prompt.messages]
        return tuple(await self._server.tokenize(messages=turns))

    async def _warm_up(self, concurrency: int) -> None:
        """Two warm-up prompts a slot, the few there are over and over.

        The second answer of each slot is longer than that of the slot before, so that they end one
        after the other and every batch size is seen.
        """
        sources = [self._requests[prompt.index] for prompt in self._parts.warmup.prompts]
        shares = [1.0] * concurrency
        shares += [slot / concurrency for slot in range(1, concurrency + 1)]
        requests: list[Request] = []
        for place, share in enumerate(shares):
            source = sources[place % len(sources)]
            longest = min(source.max_new_tokens, self._plan.warmup_new_tokens)
            requests.append(replace(source, max_new_tokens=math.ceil(share * longest)))
        load = await run_load(self._server.generate, requests, ClosedLoop(concurrency))
        if load.losses is not None:
            raise MeasureError(f"warm-up, concurrency {concurrency}: {load.losses}")

    async def _moments(self) -> DecodeMoments | None:
        """The counters, once the server has counted the last steps."""
        clock = asyncio.get_running_loop().time
        deadline_s = clock() + SETTLE_S
        moments = await self._server.decode_moments()
        while moments is not None and moments.num_unfinished and clock() < deadline_s:
            await asyncio.sleep(_POLL_S)
            moments = await self._server.decode_moments()
        return moments

    def _require_admitted(self, concurrency: int) -> None:
        if concurrency > self._max_running:
            raise MeasureError(
                f"concurrency {concurrency}: the server decodes {self._max_running} requests at"
                " once, so its queue would be measured; start it with a higher"
                " max_running_requests"
            )


def _require_disjoint(parts: Parts) -> None:
    workload = parts.workload
    owners: dict[int, Part] = {}
    for part in parts.all:
        for prompt in part.prompts:
            if prompt.index in owners:
                raise WorkloadError(
                    f"{workload.place(prompt)}: is in part {owners[prompt.index].name} and again"
                    f" in {part.name}, must be in one, once"
                )
            owners[prompt.index] = part
