"""The figures of a pass are those of its records and of the server's counters."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.errors import MeasureError
from autospec.measure.load import ClosedLoop, Load, Poisson
from autospec.measure.summary import filled_window, most_in_flight, server_delta, summarize
from autospec.measurement import DecodeMoments, RequestRecord


def record(prompt: int, start_s: float, end_s: float, tokens: int = 4) -> RequestRecord:
    """An answer of evenly spaced tokens."""
    gap_s = (end_s - start_s) / tokens
    return RequestRecord(
        prompt,
        start_s,
        end_s,
        chunk_s=tuple(start_s + gap_s * (n + 1) for n in range(tokens)),
        chunk_tokens=tuple(range(1, tokens + 1)),
        completion_tokens=tokens,
    )


@pytest.mark.parametrize(
    ("arrival", "warning"),
    [
        (ClosedLoop(3), "no answer came while 3 requests were in flight: the whole pass counts"),
        (Poisson(9.0), "the last request was sent before the load was steady: the whole pass"),
    ],
)
def test_without_a_steady_load_the_whole_pass_counts_with_a_warning(
    arrival: ClosedLoop | Poisson, warning: str
) -> None:
    """Two requests at once are no load of three, nor did they come long enough."""
    records = (record(0, 1.0, 3.0), record(1, 1.5, 3.0))
    run = summarize(Load(records, 2.5, 0.1), "tune", arrival, 0)
    assert run.window_s == (1.0, 3.0)
    assert run.output_throughput == pytest.approx(4.0)
    assert run.warnings[0].startswith(warning)
    assert len(run.warnings) == 1


def test_arrivals_at_a_rate_count_once_as_many_end_as_arrive() -> None:
    """Answers of 2 s, one sent a second: from 2 s after the first to the last arrival."""
    records = tuple(record(n, float(n), n + 2.0) for n in range(10))
    run = summarize(Load(records, 11.0, 0.1), "tune", Poisson(1.0), 3)
    assert (run.request_rate, run.concurrency, run.repeat) == (1.0, 2, 3)
    assert run.window_s == (2.0, 9.0)
    assert run.output_throughput == pytest.approx(4.0)
    assert run.warnings == ()


def test_a_lost_request_leaves_no_figure() -> None:
    """Whatever the others made."""
    lost = RequestRecord(1, 1.0, 2.0, error="HTTP 500:\n no")
    load = Load((record(0, 1.0, 3.0), lost), 2.5, 0.1, given_up=4)
    message = "tune, 2 requests/s, repeat 0: 1 of 6 requests were lost, .*first with: HTTP 500: no"
    with pytest.raises(MeasureError, match=message):
        summarize(load, "tune", Poisson(2.0), 0)


@pytest.mark.parametrize("records", [(), (record(0, 1.0, 2.0),)])
def test_one_arrival_has_no_window(records: tuple[RequestRecord, ...]) -> None:
    """Nothing lies between its own times."""
    assert filled_window(records) is None


def test_most_in_flight_counts_a_handover_once() -> None:
    """A request that begins when another ends takes its place."""
    assert most_in_flight([record(0, 0, 2), record(1, 1, 3), record(2, 2, 4)]) == 2
    assert most_in_flight([]) == 0


def moments(steps: list[tuple[int, float]], tokens: float = 0, **more: int) -> DecodeMoments:
    """The sums over steps of (batch size, microseconds)."""
    return DecodeMoments(
        len(steps),
        sum(b for b, _ in steps),
        sum(us for _, us in steps),
        sum(b * b for b, _ in steps),
        sum(b * us for b, us in steps),
        tokens,
        **more,
    )


steps = st.lists(st.tuples(st.integers(1, 64), st.integers(1, 10**6)), min_size=1, max_size=30)


@given(before=steps, during=steps)
def test_what_the_server_did_is_the_mean_and_the_regression_over_its_steps(
    before: list[tuple[int, float]], during: list[tuple[int, float]]
) -> None:
    """Of the steps between two readings alone, compared with the textbook's formulas."""
    delta = server_delta(moments(before, 5), moments(before + during, 12))
    assert delta is not None
    batches, times_us = zip(*during, strict=True)
    assert (delta.num_steps, delta.num_tokens) == (len(during), 7)
    assert delta.batch_size == pytest.approx(statistics.fmean(batches))
    assert delta.step_time_ms == pytest.approx(statistics.fmean(times_us) / 1000)
    assert delta.batch_size_stdev == pytest.approx(statistics.pstdev(batches), abs=1e-4)
    if len(set(batches)) == 1:
        assert delta.step_time_slope_ms is None
    else:
        slope = statistics.linear_regression(batches, times_us).slope / 1000
        assert delta.step_time_slope_ms == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_a_slope_survives_large_counters() -> None:
    """After days the sums are huge and the difference small; 20 ms and 3 ms a request stay."""
    long = DecodeMoments(10**8, 3.2e9, 4e12, 1.1e11, 1.3e14, 0)
    during = moments([(b, 20_000.0 + 3000 * b) for b in (30, 31, 32, 32, 32)])
    after = DecodeMoments(
        long.num_steps + during.num_steps,
        long.sum_batch_size + during.sum_batch_size,
        long.sum_step_us + during.sum_step_us,
        long.sum_batch_size_sq + during.sum_batch_size_sq,
        long.sum_batch_step_us + during.sum_batch_step_us,
        0,
    )
    delta = server_delta(long, after)
    assert delta is not None
    assert delta.step_time_slope_ms == pytest.approx(3.0, rel=0.01)
    assert math.isclose(delta.batch_size, 31.4)


def test_a_server_that_decoded_nothing_has_no_counts() -> None:
    """Nor has one that counts none; the first reading of a fresh server may be none."""
    some = moments([(1, 10.0)], sum_prefill_tokens=9)
    assert server_delta(some, some) is None
    assert server_delta(some, None) is None
    fresh = server_delta(None, some)
    assert fresh is not None
    assert (fresh.num_steps, fresh.num_prefill_tokens) == (1, None)
    more = moments([(1, 10.0)] * 2, sum_prefill_tokens=14)
    later = server_delta(some, more)
    assert later is not None
    assert later.num_prefill_tokens == 5
