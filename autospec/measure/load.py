"""The load generator: one asyncio loop that never limits the server, and says so if it did."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from autospec.errors import MeasureError
from autospec.measurement import Request, RequestRecord

__all__ = ["Generate", "Load", "run_closed_loop"]

#: Sends one request and returns its record once it has ended, in success or failure.
Generate = Callable[[Request], Awaitable[RequestRecord]]


@dataclass(frozen=True, slots=True)
class Load:
    """What came of sending requests.

    Attributes:
        records: one a request, in the order in which they ended.
        duration_s: from before the first was sent until after the last ended.
        busy_share: CPU time of this thread over ``duration_s``, at most 1: near 1, the client and
            not the server set the pace.
    """

    records: tuple[RequestRecord, ...]
    duration_s: float
    busy_share: float


async def run_closed_loop(
    generate: Generate, requests: Sequence[Request], concurrency: int
) -> Load:
    """Send requests in order, ``concurrency`` at a time; when one ends the next is sent at once.

    Cancelling this cancels every request in flight.

    Raises:
        MeasureError: ``concurrency`` is below 1.
        Exception: whatever ``generate`` raised first; the other requests are cancelled.
    """
    if concurrency < 1:
        raise MeasureError(f"concurrency is {concurrency}, must be at least 1")
    waiting = iter(requests)
    records: list[RequestRecord] = []

    async def keep_one_in_flight() -> None:
        for request in waiting:
            records.append(await generate(request))  # noqa: PERF401 - shared by all slots

    loop = asyncio.get_running_loop()
    begin_s, begin_cpu_s = loop.time(), time.thread_time()
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(requests))):
                group.create_task(keep_one_in_flight())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    duration_s, cpu_s = loop.time() - begin_s, time.thread_time() - begin_cpu_s
    return Load(
        records=tuple(records),
        duration_s=duration_s,
        busy_share=min(1.0, cpu_s / duration_s) if duration_s > 0 else 1.0,
    )
