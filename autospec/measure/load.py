"""The load generator: one asyncio loop that never limits the server, and refuses if it did."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autospec.errors import InputError, MeasureError
from autospec.measurement import Request, RequestRecord

__all__ = ["Arrival", "ClosedLoop", "Generate", "Load", "Poisson", "run_load"]

#: Sends one request and returns its record once it has ended, in success or failure.
Generate = Callable[[Request], Awaitable[RequestRecord]]

#: Above this share of its core, the client and not the server set the pace.
MOST_BUSY_SHARE: Final = 0.9
#: At least 99 % of the sends of an open loop must be no later than this, in s.
MOST_LAG_S: Final = 0.05
#: How long the requests in flight may still take once one was lost, in s.
GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """``concurrency`` requests in flight; when one ends the next is sent at once.

    Raises:
        InputError: ``concurrency`` is below 1.
    """

    concurrency: int

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise InputError(f"concurrency is {self.concurrency}, must be at least 1")


@dataclass(frozen=True, slots=True)
class Poisson:
    """Requests are sent at random, ``rate_per_s`` of them a second, however slow the server is.

    The gaps are independent and exponential, the same for the same seed; the first request is sent
    at once.

    Raises:
        InputError: the rate is not a positive number.
    """

    rate_per_s: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate_per_s < math.inf:
            raise InputError(f"rate_per_s is {self.rate_per_s}, must be above 0 and finite")

    def times_s(self, count: int) -> tuple[float, ...]:
        """When each of ``count`` requests is sent, in s after the first."""
        draw = random.Random(self.seed)  # noqa: S311 - reproducible load, not a secret
        moments = [0.0]
        while len(moments) < count:
            moments.append(moments[-1] + draw.expovariate(self.rate_per_s))
        return tuple(moments[:count])


Arrival = ClosedLoop | Poisson


@dataclass(frozen=True, slots=True)
class Load:
    """What came of sending requests.

    Attributes:
        records: one for each request that ended, in the order in which they ended.
        duration_s: from before the first was sent until after the last ended.
        busy_share: CPU time of this thread over ``duration_s``, at most 1: near 1, the client and
            not the server set the pace.
        given_up: requests that were in flight or not yet sent when the load was ended because
            another one was lost.
        lags_s: for each request that an open loop sent, how long after its time that was, in s.
    """

    records: tuple[RequestRecord, ...]
    duration_s: float
    busy_share: float
    given_up: int = 0
    lags_s: tuple[float, ...] = ()

    @property
    def worst_lag_s(self) -> float:
        """The latest send of an open loop, in s after its time; 0 for a closed loop."""
        return max(self.lags_s, default=0.0)

    @property
    def losses(self) -> str | None:
        """How many requests were lost and to what, in one line; None if all were answered."""
        errors = [record.error for record in self.records if record.error is not None]
        if not errors:
            return None
        total = len(self.records) + self.given_up
        rest = f", {self.given_up} more were given up" if self.given_up else ""
        first = " ".join(errors[0].split())
        return f"{len(errors)} of {total} requests were lost{rest}; the first with: {first}"


async def run_load(generate: Generate, requests: Sequence[Request], arrival: Arrival) -> Load:
    """Send requests, in order, as ``arrival`` says.

    Once a request is lost (its record has an ``error``) no other is sent: what is in flight may end
    within ``GRACE_S``, the rest is given up. Cancelling this cancels every request in flight.

    Raises:
        MeasureError: every request was answered, but the load generator limited the server: it
            used more than ``MOST_BUSY_SHARE`` of its core, or more than 1 % of the sends of an
            open loop came more than ``MOST_LAG_S`` late.
        Exception: whatever ``generate`` raised first; the other requests are cancelled.
    """
    loop = asyncio.get_running_loop()
    begin_s, begin_cpu_s = loop.time(), time.thread_time()
    sender = _Sender(generate, asyncio.timeout(None))
    try:
        async with sender.limit, asyncio.TaskGroup() as group:
            if isinstance(arrival, ClosedLoop):
                waiting = iter(requests)
                for _ in range(min(arrival.concurrency, len(requests))):
                    group.create_task(sender.keep_one_in_flight(waiting))
            else:
                times_s = arrival.times_s(len(requests))
                due = zip(requests, (begin_s + time_s for time_s in times_s), strict=True)
                group.create_task(sender.send_when_due(due, group))
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    except TimeoutError:
        if not sender.limit.expired():
            raise
    duration_s, cpu_s = loop.time() - begin_s, time.thread_time() - begin_cpu_s
    load = Load(
        records=tuple(sender.records),
        duration_s=duration_s,
        busy_share=min(1.0, cpu_s / duration_s) if duration_s > 0 else 0.0,
        given_up=len(requests) - len(sender.records),
        lags_s=tuple(sender.lags_s),
    )
    if load.losses is None:
        _refuse_if_limited(load)
    return load


class _Sender:
    """Sends the requests of one load until one is lost.

    Attributes:
        limit: set to a deadline once a request is lost.
    """

    def __init__(self, generate: Generate, limit: asyncio.Timeout) -> None:
        self._generate = generate
        self.limit = limit
        self.records: list[RequestRecord] = []
        self.lags_s: list[float] = []

    @property
    def _stopped(self) -> bool:
        return self.limit.when() is not None

    async def keep_one_in_flight(self, waiting: Iterator[Request]) -> None:
        for request in waiting:
            if self._stopped:
                return
            await self._send(request)

    async def send_when_due(
        self, due: Iterable[tuple[Request, float]], group: asyncio.TaskGroup
    ) -> None:
        loop = asyncio.get_running_loop()
        for request, due_s in due:
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            if self._stopped:
                return
            group.create_task(self._send_late(request, due_s))

    async def _send_late(self, request: Request, due_s: float) -> None:
        self.lags_s.append(max(0.0, asyncio.get_running_loop().time() - due_s))
        await self._send(request)

    async def _send(self, request: Request) -> None:
        record = await self._generate(request)
        self.records.append(record)
        if record.error is not None and not self._stopped:
            self.limit.reschedule(asyncio.get_running_loop().time() + GRACE_S)


def _refuse_if_limited(load: Load) -> None:
    if load.busy_share > MOST_BUSY_SHARE:
        raise MeasureError(
            f"the load generator used {load.busy_share:.0%} of its core; above"
            f" {MOST_BUSY_SHARE:.0%} it may be what limits the throughput: ask for less load, give"
            " it a core of its own, or start the server with a larger stream_interval"
        )
    late = sum(lag_s > MOST_LAG_S for lag_s in load.lags_s)
    if late > len(load.lags_s) / 100:
        raise MeasureError(
            f"the load generator sent {late} of {len(load.lags_s)} requests more than"
            f" {MOST_LAG_S:g} s after their time, the latest after {load.worst_lag_s:.3f} s: ask"
            " for a lower rate, or give it a core of its own"
        )
