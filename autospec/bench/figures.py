"""From passes to figures. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from autospec import metrics
from autospec.bench.plan import load_of
from autospec.bench.result import ArmResult, LoadFigures, Subject
from autospec.measure.checks import pass_warnings
from autospec.measure.steps import step_times
from autospec.measurement import Run
from autospec.metrics import Slo
from autospec.tuning.points import latencies, short, spread

__all__ = ["arm_result", "throughputs"]

_NUMBER: Final = re.compile(r"\d+(\.\d+)?")


def arm_result(
    subject: Subject,
    runs: Sequence[Run],
    slo: Slo | None,
    *,
    warnings: Sequence[str] = (),
    launch_s: Sequence[float] = (),
) -> ArmResult:
    """All figures of one server.

    Args:
        subject: what it is.
        runs: its passes, at least one.
        slo: limits that requests are held to.
        warnings: what was noticed beside the passes.
        launch_s: how long each launch took.
    """
    loads = dict.fromkeys(load_of(run) for run in runs)
    return ArmResult(
        subject=subject,
        loads=tuple(_figures(name, runs, slo) for name in loads),
        warnings=(*dict.fromkeys(warnings), *pass_warnings(runs), *_warnings(runs)),
        launch_s=tuple(short(seconds) for seconds in launch_s),
    )


def throughputs(runs: Sequence[Run], load: str) -> tuple[float, ...]:
    """Output tokens/s of each pass at a load, ordered by repeat."""
    chosen = [run for run in runs if load_of(run) == load]
    return tuple(run.output_throughput for run in sorted(chosen, key=lambda run: run.repeat))


def _figures(load: str, runs: Sequence[Run], slo: Slo | None) -> LoadFigures:
    chosen = [run for run in runs if load_of(run) == load]
    records = [record for run in chosen for record in run.records]
    values = throughputs(runs, load)
    latency = latencies(records)
    length = metrics.accept_length(records)
    rates = metrics.accept_rate_per_pos(metrics.correct_histogram(records))
    steps = next(iter(step_times(chosen)), None)
    attained = metrics.slo_attainment(records, slo) if slo else None
    return LoadFigures(
        load=load,
        throughputs=tuple(map(short, values)),
        output_throughput=spread(values),
        requests=len(chosen[0].records),
        ttft_ms=latency.get("ttft_ms"),
        tpot_ms=latency.get("tpot_ms"),
        e2e_latency_ms=latency.get("e2e_latency_ms"),
        chunk_gap_ms=latency.get("chunk_gap_ms"),
        accept_length=None if length is None else short(length),
        accept_rate_per_pos=tuple(map(short, rates)),
        batch_size=short(steps.batch_size) if steps else None,
        step_time_ms=short(steps.step_time_ms) if steps else None,
        request_goodput=_goodput(chosen, slo) if slo else None,
        slo_attainment=None if attained is None else short(attained),
        client_busy_share=short(max(run.client_busy_share for run in chosen)),
    )


def _goodput(runs: Sequence[Run], slo: Slo) -> float:
    """Mean over the passes, each weighted by its window."""
    lengths = [run.window_s[1] - run.window_s[0] for run in runs]
    rates = [metrics.request_goodput(run.records, slo, run.window_s) for run in runs]
    return short(sum(r * s for r, s in zip(rates, lengths, strict=True)) / sum(lengths))


def _warnings(runs: Sequence[Run]) -> tuple[str, ...]:
    """One line for the warnings at a load that differ in numbers only: how many, and the first."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        for line in run.warnings:
            kinds.setdefault((load_of(run), _NUMBER.sub("0", line)), []).append(line)
    passes = Counter(map(load_of, runs))
    return tuple(
        f"load {load}, {len(found)} of {passes[load]} passes: {found[0]}"
        for (load, _), found in kinds.items()
    )
