"""From what a pass left behind to its figures: the window, the throughput, the server's counts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autospec import metrics
from autospec.errors import MeasureError
from autospec.measure.load import Arrival, ClosedLoop, Load
from autospec.measurement import DecodeMoments, RequestRecord, Run, ServerDelta

__all__ = ["filled_window", "most_in_flight", "server_delta", "summarize"]

#: Arrivals at a rate have filled the server once this share of the requests would have ended.
FILLED_SHARE = 0.9


def summarize(load: Load, part: str, arrival: Arrival, repeat: int) -> Run:
    """The figures of a pass, without the server's counts.

    Where no answer came in the window, the whole pass counts, with a warning.

    Raises:
        MeasureError: a request was lost, or no token arrived.
    """
    records = load.records
    if isinstance(arrival, ClosedLoop):
        concurrency, request_rate = arrival.concurrency, None
        window = metrics.steady_window(records, concurrency)
        missed = f"no answer came while {concurrency} requests were in flight"
    else:
        concurrency, request_rate = most_in_flight(records), arrival.rate_per_s
        window = filled_window(records)
        missed = "the last request was sent before the load was steady"
    run = Run(
        part=part,
        concurrency=concurrency,
        repeat=repeat,
        output_throughput=0.0,
        window_s=window or (0.0, 0.0),
        duration_s=load.duration_s,
        records=records,
        client_busy_share=load.busy_share,
        request_rate=request_rate,
    )
    if load.losses is not None:
        raise MeasureError(f"{run.label}: {load.losses}")
    if not metrics.tokens_in_window(records, run.window_s):
        whole = min(record.start_s for record in records), max(r.end_s for r in records)
        warning = f"{missed}: the whole pass counts, its start and end too"
        run = replace(run, window_s=whole, warnings=(warning,))
    tokens = metrics.tokens_in_window(records, run.window_s)
    length_s = run.window_s[1] - run.window_s[0]
    if not tokens or length_s <= 0:
        raise MeasureError(f"{run.label}: {tokens} tokens in {length_s:.3f} s are no throughput")
    return replace(run, output_throughput=tokens / length_s)


def filled_window(records: Sequence[RequestRecord]) -> tuple[float, float] | None:
    """The stretch of a pass with arrivals at a rate in which the load is steady, in s.

    It begins when nine tenths of the requests, had they all been sent first, would have ended: from
    then on as many end as arrive. It ends with the last arrival. None when nothing lies between.
    """
    arrivals = metrics.arrival_window(records)
    if arrivals is None:
        return None
    latencies = sorted(record.end_s - record.start_s for record in records)
    begin_s = arrivals[0] + latencies[math.ceil(FILLED_SHARE * len(latencies)) - 1]
    return (begin_s, arrivals[1]) if begin_s < arrivals[1] else None


def most_in_flight(records: Sequence[RequestRecord]) -> int:
    """The most requests that were open at one moment."""
    changes = [(record.start_s, 1) for record in records]
    changes += [(record.end_s, -1) for record in records]
    most = now = 0
    # At one moment an end comes before a start.
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most


def server_delta(before: DecodeMoments | None, after: DecodeMoments | None) -> ServerDelta | None:
    """What the server did between two readings; None where it counted no decode step.

    A first reading of None is that of a server that has not decoded yet.
    """
    first = before or DecodeMoments(0, 0.0, 0.0, 0.0, 0.0, 0.0)
    if after is None or after.num_steps <= first.num_steps:
        return None
    steps = after.num_steps - first.num_steps
    batch_size = (after.sum_batch_size - first.sum_batch_size) / steps
    step_us = (after.sum_step_us - first.sum_step_us) / steps
    square = (after.sum_batch_size_sq - first.sum_batch_size_sq) / steps
    product = (after.sum_batch_step_us - first.sum_batch_step_us) / steps
    # Rounding may leave a trace of variance where there is none: a step's batch is a whole number.
    variance = square - batch_size**2
    if variance < 0.5 / steps:
        variance = 0.0
    prefilled = None
    if first.sum_prefill_tokens is not None and after.sum_prefill_tokens is not None:
        prefilled = after.sum_prefill_tokens - first.sum_prefill_tokens
    return ServerDelta(
        num_steps=steps,
        batch_size=batch_size,
        step_time_ms=step_us / 1000,
        num_tokens=round(after.sum_tokens - first.sum_tokens),
        batch_size_stdev=math.sqrt(variance),
        step_time_slope_ms=(product - batch_size * step_us) / variance / 1000 if variance else None,
        num_prefill_tokens=prefilled,
    )
