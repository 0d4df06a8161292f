"""What a trial shows beside its value: throughputs, step times and acceptance. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from autospec import metrics
from autospec.measurement import Measurement, Run

__all__ = ["LoadSeen", "Seen", "seen_of"]


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """One configuration at one load.

    Attributes:
        load: requests in flight at the client; 1 where it is not known.
        throughput: output tokens/s.
        batch_size: mean running requests a step; None where the server does not count.
        step_time_ms: mean time of a decode step; None where the server does not count.
    """

    load: int
    throughput: float
    batch_size: float | None = None
    step_time_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one trial shows, as far as it is known.

    Attributes:
        loads: by rising load.
        accept_length: tokens a verify step, bonus token included; None without speculation.
        rates: share of verify steps whose first 1, 2, ... drafts were right.
        verify_ct: verify steps that the rates rest on; None where it is not known.
        error: standard error of the log of the throughputs' geometric mean; 0 when not known.
        launch_s: what starting the server took; 0 when not known.
        passes_s: what measuring took after that; 0 when not known.
    """

    loads: tuple[LoadSeen, ...]
    accept_length: float | None = None
    rates: tuple[float, ...] = ()
    verify_ct: int | None = None
    error: float = 0.0
    launch_s: float = 0.0
    passes_s: float = 0.0


def seen_of(measurement: Measurement, part: str = "tune") -> Seen:
    """What the closed-loop passes of a measurement show."""
    runs = [run for run in measurement.runs if run.part == part and run.request_rate is None]
    by_load = {
        level: [run for run in runs if run.concurrency == level]
        for level in sorted({run.concurrency for run in runs})
    }
    records = [record for run in runs for record in run.records]
    histogram = metrics.correct_histogram(records)
    return Seen(
        loads=tuple(_load(level, chosen) for level, chosen in by_load.items()),
        accept_length=metrics.accept_length(records),
        rates=metrics.accept_rate_per_pos(histogram),
        verify_ct=sum(histogram) or None,
        error=_error(list(by_load.values())),
        launch_s=measurement.launch_s,
        passes_s=max(0.0, measurement.duration_s - measurement.launch_s),
    )


def _load(level: int, runs: Sequence[Run]) -> LoadSeen:
    throughput = statistics.median(run.output_throughput for run in runs)
    counts = [run.server for run in runs if run.server is not None]
    steps = sum(count.num_steps for count in counts)
    if not steps:
        return LoadSeen(level, throughput)
    batch_size = sum(count.num_steps * count.batch_size for count in counts) / steps
    step_time_ms = sum(count.num_steps * count.step_time_ms for count in counts) / steps
    return LoadSeen(level, throughput, batch_size, step_time_ms)


def _error(loads: Sequence[Sequence[Run]]) -> float:
    """Standard error of the mean over loads of the mean log throughput of each."""
    squares = []
    for runs in loads:
        logs = [math.log(run.output_throughput) for run in runs if run.output_throughput > 0]
        if len(logs) > 1:
            squares.append(statistics.variance(logs) / len(logs))
    return math.sqrt(sum(squares)) / len(loads) if squares else 0.0
