"""Step times by batch size, from the server's own counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autospec.measurement import Run, ServerDelta

__all__ = ["StepTime", "step_times"]


@dataclass(frozen=True, slots=True)
class StepTime:
    """Decode steps of all passes at one load.

    Attributes:
        concurrency: requests in flight, at most.
        request_rate: requests/s where they arrived at a rate.
        batch_size: mean running requests a step.
        step_time_ms: mean time of a step, drafting included.
        slope_ms: by how much a step took longer for each further running request, within passes;
            None where the batch size did not vary in any.
        num_steps: steps that the means rest on.
    """

    concurrency: int
    request_rate: float | None
    batch_size: float
    step_time_ms: float
    slope_ms: float | None
    num_steps: int


def step_times(runs: Iterable[Run]) -> tuple[StepTime, ...]:
    """One row a load, closed loops first, by rising load; none where the server counts no steps.

    Passes are weighted by their steps, and their slopes by the variance of the batch size too, as
    in one regression with an intercept a pass.
    """
    loads: dict[tuple[bool, float], list[Run]] = {}
    for run in runs:
        rate = run.request_rate
        loads.setdefault((rate is not None, rate or run.concurrency), []).append(run)
    rows = (_row(chosen) for _, chosen in sorted(loads.items()))
    return tuple(row for row in rows if row is not None)


def _row(runs: list[Run]) -> StepTime | None:
    counts = [run.server for run in runs if run.server is not None]
    steps = sum(count.num_steps for count in counts)
    if not steps:
        return None
    return StepTime(
        concurrency=max(run.concurrency for run in runs),
        request_rate=runs[0].request_rate,
        batch_size=sum(count.num_steps * count.batch_size for count in counts) / steps,
        step_time_ms=sum(count.num_steps * count.step_time_ms for count in counts) / steps,
        slope_ms=_slope(counts),
        num_steps=steps,
    )


def _slope(counts: list[ServerDelta]) -> float | None:
    weighted = [
        (count.num_steps * count.batch_size_stdev**2, count.step_time_slope_ms)
        for count in counts
        if count.step_time_slope_ms is not None
    ]
    total = sum(weight for weight, _ in weighted)
    return sum(weight * slope for weight, slope in weighted) / total if total else None
