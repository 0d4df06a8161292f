"""The load is exactly the one asked for, ends at the first loss, and is refused if it was not."""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import InputError, MeasureError, ServerDiedError
from autospec.measure.load import GRACE_S, Arrival, ClosedLoop, Load, Poisson, run_load
from autospec.measurement import Request, RequestRecord
from tests.measure.virtual import VirtualLoop, VirtualServer, run

LENGTHS = st.lists(st.integers(1, 9), max_size=30)
ARRIVALS = st.one_of(
    st.builds(ClosedLoop, st.integers(1, 8)),
    st.builds(Poisson, st.floats(0.1, 100), st.integers(0, 2**32)),
)


def requests(*lengths: int) -> list[Request]:
    """One request for each length of answer."""
    return [Request(n, (n,), length) for n, length in enumerate(lengths)]


def losing(*prompts: int, **options: Any) -> VirtualServer:
    """A server that answers all but these."""

    def change(request: Request, record: RequestRecord) -> RequestRecord:
        lost = request.prompt in prompts
        return replace(record, error=f"no\n{request.prompt}") if lost else record

    return VirtualServer(change=change, **options)


@given(lengths=LENGTHS, concurrency=st.integers(1, 8))
def test_slots_are_always_in_use_while_requests_are_left(
    lengths: list[int], concurrency: int
) -> None:
    """Each request begins the moment at which a slot comes free, in order."""
    server = VirtualServer()
    load = run(run_load(server.generate, requests(*lengths), ClosedLoop(concurrency)))
    assert server.calls == list(range(len(lengths)))
    assert server.most_in_flight == min(concurrency, len(lengths))
    assert sorted(r.prompt for r in load.records) == server.calls
    ends = sorted(r.end_s for r in load.records)
    starts = sorted(r.start_s for r in load.records)
    assert starts[:concurrency] == [0.0] * min(concurrency, len(lengths))
    assert starts[concurrency:] == ends[: max(0, len(lengths) - concurrency)]
    assert load.duration_s == (ends[-1] if ends else 0.0)
    assert (load.losses, load.given_up, load.lags_s) == (None, 0, ())


def test_records_come_in_the_order_of_their_ends() -> None:
    """A short answer overtakes a long one."""
    load = run(run_load(VirtualServer().generate, requests(9, 1, 3), ClosedLoop(3)))
    assert [r.prompt for r in load.records] == [1, 2, 0]


@given(lengths=LENGTHS, rate=st.floats(0.1, 100), seed=st.integers(0, 2**32))
def test_an_open_loop_sends_at_its_times_however_slow_the_server_is(
    lengths: list[int], rate: float, seed: int
) -> None:
    """Answers that take minutes delay no arrival, and no send is late."""
    server, arrival = VirtualServer(step_s=60), Poisson(rate, seed)
    load = run(run_load(server.generate, requests(*lengths), arrival))
    starts = [r.start_s for r in sorted(load.records, key=lambda r: r.prompt)]
    assert starts == pytest.approx(arrival.times_s(len(lengths)))
    assert len(load.lags_s) == len(lengths)
    assert load.worst_lag_s < 1e-6


@given(rate=st.floats(0.01, 1000), seed=st.integers(0, 2**32), count=st.integers(0, 50))
def test_the_times_of_a_seed_are_its_own(rate: float, seed: int, count: int) -> None:
    """They begin at zero, never fall, go on as they began, and scale with the rate."""
    times_s = Poisson(rate, seed).times_s(count)
    assert len(times_s) == count
    assert times_s[:1] == (0.0,)[:count]
    assert list(times_s) == sorted(times_s)
    assert Poisson(rate, seed).times_s(count + 5)[:count] == times_s
    slower = Poisson(rate / 2, seed).times_s(count)
    assert slower == pytest.approx([2 * time_s for time_s in times_s])
    assert count < 2 or Poisson(rate, seed + 1).times_s(count) != times_s


@pytest.mark.parametrize("rate", [0.5, 40.0])
def test_gaps_are_exponential_at_the_rate_asked_for(rate: float) -> None:
    """Mean, spread and tail of 20 000 gaps are those of a Poisson process, within 3 %."""
    times_s = Poisson(rate, seed=1).times_s(20_001)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times_s)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(1 / rate, rel=0.03)
    assert deviation == pytest.approx(1 / rate, rel=0.03)
    assert sum(gap > 1 / rate for gap in gaps) / len(gaps) == pytest.approx(1 / math.e, rel=0.03)


@pytest.mark.parametrize(
    ("arrival", "value", "message"),
    [
        (ClosedLoop, 0, "concurrency is 0"),
        (Poisson, 0.0, r"rate_per_s is 0\.0"),
        (Poisson, -1.0, r"rate_per_s is -1\.0"),
        (Poisson, math.inf, "rate_per_s is inf"),
        (Poisson, math.nan, "rate_per_s is nan"),
    ],
)
def test_a_load_that_sends_nothing_is_refused(arrival: Any, value: float, message: str) -> None:
    """It would measure nothing and say nothing."""
    with pytest.raises(InputError, match=message):
        arrival(value)


@given(
    lengths=LENGTHS.filter(bool),
    arrival=ARRIVALS,
    lost=st.sets(st.integers(0, 29), min_size=1, max_size=3),
    step_s=st.sampled_from([0.1, 3.0]),
)
def test_a_loss_ends_the_load(
    lengths: list[int], arrival: Arrival, lost: set[int], step_s: float
) -> None:
    """After the first loss nothing is sent, and nothing is waited for beyond the grace."""
    server = losing(*lost, step_s=step_s)
    load = run(run_load(server.generate, requests(*lengths), arrival))
    assert server.in_flight == 0
    assert len(load.records) + load.given_up == len(lengths)
    ends = [r.end_s for r in load.records if r.error is not None]
    assert (load.losses is None) == (not ends) == lost.isdisjoint(range(len(lengths)))
    if not ends:
        assert load.given_up == 0
        return
    assert load.duration_s <= min(ends) + GRACE_S + 1e-6
    assert all(r.start_s <= min(ends) + 1e-6 for r in load.records)


@pytest.mark.parametrize("arrival", [ClosedLoop(3), Poisson(50.0, seed=3)])
def test_losses_are_counted_and_named_in_one_line(arrival: Arrival) -> None:
    """What else was lost in the grace counts; what was unanswered after it was given up."""
    server = losing(1, 2, step_s=1.0)
    load = run(run_load(server.generate, requests(99, 2, 4, 5, 6), arrival))
    assert [r.prompt for r in load.records if r.error] == [1, 2]
    told = f"2 of 5 requests were lost, {load.given_up} more were given up; the first with: no 1"
    assert load.losses == told
    assert load.given_up >= 1


def test_an_error_of_the_client_ends_the_pass_and_all_requests() -> None:
    """The error comes out as it was raised, with nothing left in flight."""
    server = VirtualServer()

    async def generate(request: Request) -> RequestRecord:
        record = await server.generate(request)
        if request.prompt == 1:
            raise ServerDiedError("gone")
        return record

    with pytest.raises(ServerDiedError, match=r"^gone$"):
        run(run_load(generate, requests(9, 1, 9), ClosedLoop(2)))
    assert server.in_flight == 0
    assert server.calls == [0, 1]


def test_a_timeout_that_the_client_raises_is_not_taken_for_the_end_of_the_grace() -> None:
    """Only the load's own deadline ends it without an error."""

    async def generate(request: Request) -> RequestRecord:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        run(run_load(generate, requests(1), ClosedLoop(1)))


@pytest.mark.parametrize("arrival", [ClosedLoop(4), Poisson(1e6)])
def test_cancelling_leaves_nothing_in_flight(arrival: Arrival) -> None:
    """Ctrl-C in mid-pass closes every request."""
    server = VirtualServer()

    async def cancel_soon() -> None:
        task = asyncio.create_task(run_load(server.generate, requests(*[9] * 4), arrival))
        await asyncio.sleep(0.5)
        assert server.in_flight == 4
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        run(cancel_soon())
    assert server.in_flight == 0
    assert server.calls == [0, 1, 2, 3]


def load_with_burning(server: VirtualServer, burn_s: float) -> Load:
    """Two answers, before each of which the client computes for some seconds of CPU time."""

    async def generate(request: Request) -> RequestRecord:
        until = time.thread_time() + burn_s
        while time.thread_time() < until:
            pass
        return await server.generate(request)

    return run(run_load(generate, requests(1, 1), ClosedLoop(1)))


def test_a_client_that_only_waits_is_idle() -> None:
    """Its share is CPU time over the time of the pass."""
    assert load_with_burning(VirtualServer(first_s=0.2), 0).busy_share < 0.5
    assert 0.2 <= load_with_burning(VirtualServer(first_s=0.2), 0.05).busy_share <= 0.9


def test_a_client_that_computed_all_the_time_refuses_its_result() -> None:
    """It may have been what limited the server: by how much, and what to do about it."""
    message = "used 100% of its core; above 90% .* a core of its own"
    with pytest.raises(MeasureError, match=message):
        load_with_burning(VirtualServer(first_s=0.02), 0.02)


def test_a_loss_is_told_before_a_busy_client() -> None:
    """Whoever lost requests has no throughput to doubt."""
    load = load_with_burning(losing(0, first_s=0.02), 0.02)
    assert load.busy_share > 0.9
    assert load.losses == "1 of 2 requests were lost, 1 more were given up; the first with: no 0"


def sends_after_a_pause(arrival: Poisson, *, count: int, at: int, pause_s: float) -> Load:
    """A load whose client is stopped for a while just after it sent one of the requests."""
    server = VirtualServer()

    async def generate(request: Request) -> RequestRecord:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop._jumping.now += pause_s * (request.prompt == at)
        return await server.generate(request)

    return run(run_load(generate, requests(*[1] * count), arrival))


def test_a_client_that_sends_late_refuses_its_result() -> None:
    """An open loop that lags behind its times sends another load than the one asked for."""
    message = r"sent \d+ of 50 requests more than 0.05 s after .* latest after 0\.\d+ s"
    with pytest.raises(MeasureError, match=message):
        sends_after_a_pause(Poisson(100.0), count=50, at=10, pause_s=0.3)


def test_a_short_pause_of_the_client_is_kept_with_the_result() -> None:
    """Below the bound the lag is no reason to refuse, and it is there to be read."""
    load = sends_after_a_pause(Poisson(100.0), count=50, at=10, pause_s=0.04)
    assert 0 < load.worst_lag_s <= 0.05


@pytest.mark.parametrize(("count", "refused"), [(99, True), (100, False)])
def test_one_late_send_in_a_hundred_is_let_pass(count: int, refused: bool) -> None:
    """A long load may have one hiccup; in a shorter one the same hiccup is too much."""
    arrival = Poisson(1.0)
    times_s = arrival.times_s(99)
    # The pause is over before the next request but one.
    at = next(
        n
        for n in range(97)
        if times_s[n + 1] - times_s[n] < 0.3 and times_s[n + 2] - times_s[n] > 0.5
    )
    if refused:
        with pytest.raises(MeasureError, match="sent 1 of 99 requests"):
            sends_after_a_pause(arrival, count=count, at=at, pause_s=0.4)
    else:
        load = sends_after_a_pause(arrival, count=count, at=at, pause_s=0.4)
        assert load.worst_lag_s > 0.1
