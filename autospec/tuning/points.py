"""From measurements to the rows of a profile. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Literal

from autospec import metrics
from autospec.config import SpecConfig
from autospec.evidence import Acceptance, Interval, Point
from autospec.measure import stats
from autospec.measurement import Measurement, RequestRecord

__all__ = ["acceptance", "interval", "points", "schedule", "versus"]

Part = Literal["tune", "confirm"]


def versus(measurement: Measurement, plain: Measurement, part: Part) -> dict[int, stats.Ratio]:
    """Throughput over plain decoding's at each concurrency, paired by repeat."""
    levels = sorted({run.concurrency for run in plain.runs if run.part == part})
    return {
        level: stats.ratio(measurement.throughputs(level, part), plain.throughputs(level, part))
        for level in levels
    }


def interval(ratio: stats.Ratio) -> Interval:
    """A ratio as a profile keeps it."""
    return Interval(_short(ratio.value), _short(ratio.low), _short(ratio.high))


def points(
    measurement: Measurement, part: Part, plain: Measurement | None = None
) -> tuple[Point, ...]:
    """One row a concurrency; against plain decoding where it is given."""
    ratios = versus(measurement, plain, part) if plain else {}
    rows: list[Point] = []
    for level in sorted({run.concurrency for run in measurement.runs if run.part == part}):
        runs = [run for run in measurement.runs if (run.concurrency, run.part) == (level, part)]
        records = [record for run in runs for record in run.records if record.error is None]
        summary = stats.summarize([run.output_throughput for run in runs])
        throughput = Interval(_short(summary.median), _short(summary.low), _short(summary.high))
        rows.append(
            Point(
                config=measurement.config,
                part=part,
                concurrency=level,
                output_throughput=throughput,
                repeats=len(runs),
                vs_plain=interval(ratios[level]) if ratios else None,
                accept_length=_optional(metrics.accept_length(records)),
                ttft_ms=_median(metrics.ttft_ms, records),
                tpot_ms=_median(metrics.tpot_ms, records),
            )
        )
    return tuple(rows)


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
                rates = tuple(_short(rate) for rate in metrics.accept_rate_per_pos(histogram))
                rows.append(Acceptance(measurement.config, _short(length), rates, label))
    return tuple(rows)


def schedule(config: SpecConfig | None, ratios: dict[int, stats.Ratio]) -> dict[int, int]:
    """Depth of drafting at each concurrency: the configuration's where it was faster, else 0."""
    depth = 0
    if config is not None:
        depth = config.num_steps or (config.num_draft_tokens or 1) - 1
    return {level: depth if ratio.value > 1 else 0 for level, ratio in ratios.items()}


def _median(
    formula: Callable[[RequestRecord], float | None], records: list[RequestRecord]
) -> float | None:
    values = [value for value in map(formula, records) if value is not None]
    return _short(statistics.median(values)) if values else None


def _optional(value: float | None) -> float | None:
    return None if value is None else _short(value)


def _short(value: float) -> float:
    """Five significant digits: more would pretend, and rounding keeps the order."""
    return float(f"{value:.5g}")
