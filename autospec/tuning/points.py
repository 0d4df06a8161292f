"""From measurements to the rows of a profile. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from autospec import metrics
from autospec.config import SpecConfig
from autospec.evidence import Acceptance, Interval, Point, StepTime
from autospec.measure import stats, steps
from autospec.measurement import Measurement, Percentiles, RequestRecord, Run
from autospec.metrics import Slo
from autospec.tune.objective import Figure, figures, throughput

__all__ = [
    "acceptance",
    "interval",
    "latencies",
    "points",
    "short",
    "spread",
    "step_times",
    "versus",
]

Part = Literal["tune", "confirm"]


def versus(
    measurement: Measurement,
    plain: Measurement,
    part: Part,
    *,
    noise_floor: float = 0.0,
    figure: Figure = throughput,
) -> dict[int, stats.Ratio]:
    """A figure over plain decoding's at each concurrency, over the repeats that both made."""
    ratios: dict[int, stats.Ratio] = {}
    for level in sorted({run.concurrency for run in plain.runs if run.part == part}):
        ours, theirs = (figures(arm, level, part, figure) for arm in (measurement, plain))
        both = sorted(ours.keys() & theirs.keys())
        ratios[level] = stats.ratio(
            [ours[n] for n in both], [theirs[n] for n in both], noise_floor=noise_floor
        )
    return ratios


def interval(ratio: stats.Ratio) -> Interval:
    """A ratio as a profile keeps it."""
    return Interval(short(ratio.value), short(ratio.low), short(ratio.high))


def points(
    measurement: Measurement,
    part: Part,
    ratios: Mapping[int, stats.Ratio] | None = None,
    *,
    slo: Slo | None = None,
) -> tuple[Point, ...]:
    """One row a concurrency; with its ratio to plain decoding and its goodput where given."""
    rows: list[Point] = []
    for level in sorted({run.concurrency for run in measurement.runs if run.part == part}):
        runs = [run for run in measurement.runs if (run.concurrency, run.part) == (level, part)]
        records = [record for run in runs for record in run.records]
        length = metrics.accept_length(records)
        latency = latencies(records)
        rows.append(
            Point(
                config=measurement.config,
                part=part,
                concurrency=level,
                output_throughput=spread([run.output_throughput for run in runs]),
                repeats=len(runs),
                vs_plain=interval(ratios[level]) if ratios else None,
                accept_length=None if length is None else short(length),
                ttft_ms=latency.get("ttft_ms"),
                tpot_ms=latency.get("tpot_ms"),
                e2e_latency_ms=latency.get("e2e_latency_ms"),
                request_goodput=None if slo is None else _goodput(runs, slo),
                launched=measurement.launched,
            )
        )
    return tuple(rows)


def step_times(measurements: Iterable[Measurement]) -> tuple[StepTime, ...]:
    """Time of a decode step by configuration and load, over all launches of each."""
    by_config: dict[SpecConfig, list[Measurement]] = {}
    for measurement in measurements:
        by_config.setdefault(measurement.config, []).append(measurement)
    return tuple(
        StepTime(
            config=config,
            concurrency=row.concurrency,
            batch_size=short(row.batch_size),
            step_time_ms=short(row.step_time_ms),
            num_steps=row.num_steps,
            slope_ms=None if row.slope_ms is None else short(row.slope_ms),
        )
        for config, launches in by_config.items()
        for row in steps.step_times(run for launch in launches for run in launch.runs)
    )


def acceptance(measurements: Iterable[Measurement]) -> tuple[Acceptance, ...]:
    """Acceptance of each configuration over all its prompts, and over each class."""
    rows: list[Acceptance] = []
    for measurement in measurements:
        records = measurement.records()
        labels = sorted({record.label for record in records if record.label})
        for label in (None, *labels):
            chosen = [r for r in records if label is None or r.label == label]
            length = metrics.accept_length(chosen)
            if length is not None:
                histogram = metrics.correct_histogram(chosen)
                rates = tuple(short(rate) for rate in metrics.accept_rate_per_pos(histogram))
                rows.append(Acceptance(measurement.config, short(length), rates, label))
    return tuple(rows)


def _goodput(runs: Sequence[Run], slo: Slo) -> float:
    """Median requests/s within the limits over the passes."""
    return short(
        statistics.median(metrics.request_goodput(r.records, slo, r.window_s) for r in runs)
    )


def short(value: float) -> float:
    """Five significant digits: more would pretend, and rounding keeps the order."""
    return float(f"{value:.5g}")


def spread(values: Sequence[float]) -> Interval:
    """Median, lowest and highest of repeats, as a profile keeps them."""
    summary = stats.summarize(values)
    return Interval(short(summary.median), short(summary.low), short(summary.high))


def latencies(records: Iterable[RequestRecord]) -> dict[str, Percentiles]:
    """Latency percentiles by name, in ms, as a profile keeps them."""
    return {
        name: Percentiles(short(found.p50), short(found.p90), short(found.p99))
        for name, found in metrics.latency_percentiles(records).items()
    }
