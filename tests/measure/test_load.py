"""The closed loop keeps exactly the load asked for."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import MeasureError, ServerDiedError
from autospec.measure.load import run_closed_loop
from autospec.measurement import Request, RequestRecord
from tests.measure.virtual import VirtualServer, run


def requests(*lengths: int) -> list[Request]:
    """One request for each length of answer."""
    return [Request(n, (n,), length) for n, length in enumerate(lengths)]


@given(lengths=st.lists(st.integers(1, 9), max_size=30), concurrency=st.integers(1, 8))
def test_slots_are_always_in_use_while_requests_are_left(
    lengths: list[int], concurrency: int
) -> None:
    """Each request begins the moment at which a slot comes free, in order."""
    server = VirtualServer()
    load = run(run_closed_loop(server.generate, requests(*lengths), concurrency))
    assert server.calls == list(range(len(lengths)))
    assert server.most_in_flight == min(concurrency, len(lengths))
    assert sorted(r.prompt for r in load.records) == server.calls
    ends = sorted(r.end_s for r in load.records)
    starts = sorted(r.start_s for r in load.records)
    assert starts[:concurrency] == [0.0] * min(concurrency, len(lengths))
    assert starts[concurrency:] == ends[: max(0, len(lengths) - concurrency)]
    assert load.duration_s == (ends[-1] if ends else 0.0)


def test_records_come_in_the_order_of_their_ends() -> None:
    """A short answer overtakes a long one."""
    load = run(run_closed_loop(VirtualServer().generate, requests(9, 1, 3), 3))
    assert [r.prompt for r in load.records] == [1, 2, 0]


def test_a_concurrency_below_one_is_refused() -> None:
    """It would send nothing and say nothing."""
    with pytest.raises(MeasureError, match="concurrency is 0"):
        run(run_closed_loop(VirtualServer().generate, requests(1), 0))


def test_an_error_of_the_client_ends_the_pass_and_all_requests() -> None:
    """The error comes out as it was raised, with nothing left in flight."""
    server = VirtualServer()

    async def generate(request: Request) -> RequestRecord:
        record = await server.generate(request)
        if request.prompt == 1:
            raise ServerDiedError("gone")
        return record

    with pytest.raises(ServerDiedError, match=r"^gone$"):
        run(run_closed_loop(generate, requests(9, 1, 9), 2))
    assert server.in_flight == 0
    assert server.calls == [0, 1]


def test_cancelling_leaves_nothing_in_flight() -> None:
    """Ctrl-C in mid-pass closes every request."""
    server = VirtualServer()

    async def cancel_soon() -> None:
        task = asyncio.create_task(run_closed_loop(server.generate, requests(*[9] * 8), 4))
        await asyncio.sleep(0.5)
        assert server.in_flight == 4
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        run(cancel_soon())
    assert server.in_flight == 0
    assert server.calls == [0, 1, 2, 3]


@pytest.mark.parametrize(("burn_s", "busy"), [(0.0, False), (0.02, True)])
def test_the_busy_share_is_cpu_time_over_the_time_of_the_pass(burn_s: float, busy: bool) -> None:
    """A client that only waits is idle; one that computes as long as it waits is busy."""
    server = VirtualServer(first_s=0.02)

    async def generate(request: Request) -> RequestRecord:
        until = time.thread_time() + burn_s
        while time.thread_time() < until:
            pass
        return await server.generate(request)

    load = run(run_closed_loop(generate, requests(1, 1), 1))
    assert (load.busy_share > 0.9) == busy
    assert load.busy_share <= 1
