"""One number for a measurement, against plain decoding. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from autospec import metrics
from autospec.errors import ConfigError, MeasureError
from autospec.measurement import Measurement, Run
from autospec.metrics import Slo

__all__ = [
    "OBJECTIVES",
    "Figure",
    "Goal",
    "Objective",
    "figures",
    "find_objective",
    "level_ratios",
    "score",
    "throughput",
]

#: (measurement, baseline, part) -> value, larger is better, 0 is plain decoding's own.
Objective = Callable[[Measurement, Measurement, str], float]
#: One figure of a pass, above 0 and the larger the better.
Figure = Callable[[Run], float]


def throughput(run: Run) -> float:
    """Output tokens/s of a pass."""
    return run.output_throughput


def speed(run: Run) -> float:
    """Tokens/s that the median request of a pass gets: ``1000 / tpot_ms``.

    Raises:
        MeasureError: no answer of the pass was long enough to have a time per token.
    """
    found = metrics.latency_percentiles(run.records).get("tpot_ms")
    if found is None or found.p50 <= 0:
        raise MeasureError(f"{run.label}: no answer has a tpot_ms, so there is no latency to tune")
    return 1000 / found.p50


def goodput(run: Run, slo: Slo) -> float:
    """Requests/s of a pass that met their SLO, and half a request more.

    The half keeps the figure above 0 where none met it, so that a ratio exists; it draws the ratio
    of two passes with few such requests towards 1, as it should.

    Raises:
        MeasureError: the pass's window has no length.
    """
    begin_s, end_s = run.window_s
    met = metrics.request_goodput(run.records, slo, run.window_s)
    return met + 0.5 / (end_s - begin_s)


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective: the figure of a pass, and what is made of it.

    Attributes:
        name: on the command line.
        quantity: what the figure is, in words.
        figure: of one pass.
        slo: the limits of ``goodput``.
    """

    name: str
    quantity: str
    figure: Figure
    slo: Slo | None = None

    def __call__(
        self, measurement: Measurement, baseline: Measurement, part: str = "tune"
    ) -> float:
        """The value of a measurement, as ``score`` defines it."""
        return score(measurement, baseline, part, self.figure)


#: Name on the command line -> what it makes as large as it can.
OBJECTIVES: Final[Mapping[str, str]] = {
    "throughput": "tokens/s",
    "latency": "tokens/s of a request (1000 / tpot_ms, median)",
    "goodput": "requests/s within the SLO",
}


def find_objective(name: str, slo: str = "") -> Goal:
    """The objective of that name.

    Args:
        name: one of ``OBJECTIVES``.
        slo: limits as ``Slo.parse`` reads them; for ``goodput``, which needs them.

    Raises:
        ConfigError: there is none, or ``goodput`` without limits, or limits for another.
        InputError: limits that cannot be read.
    """
    if name not in OBJECTIVES:
        raise ConfigError(f"unknown objective {name!r}, must be one of {', '.join(OBJECTIVES)}")
    if (name == "goodput") != bool(slo):
        raise ConfigError(
            f"objective {name} with the limits {slo!r}: goodput needs --slo, the others take none"
        )
    if name == "goodput":
        limits = Slo.parse(slo)
        return Goal(name, OBJECTIVES[name], lambda run: goodput(run, limits), limits)
    return Goal(name, OBJECTIVES[name], throughput if name == "throughput" else speed)


def figures(
    measurement: Measurement, level: int, part: str = "tune", figure: Figure = throughput
) -> dict[int, float]:
    """Repeat -> figure of each closed-loop pass at one concurrency, ordered by repeat.

    Raises:
        MeasureError: a figure is no positive number.
    """
    asked = (part, level, None)
    runs = [r for r in measurement.runs if (r.part, r.concurrency, r.request_rate) == asked]
    found = {run.repeat: figure(run) for run in sorted(runs, key=lambda run: run.repeat)}
    for value in found.values():
        if not (math.isfinite(value) and value > 0):
            raise MeasureError(
                f"{measurement.config} at concurrency {level}: a pass makes {value:g}, "
                "must be above 0"
            )
    return found


def level_ratios(
    measurement: Measurement,
    baseline: Measurement,
    part: str = "tune",
    figure: Figure = throughput,
) -> dict[int, float]:
    """Concurrency -> median figure over plain's, for every level of the baseline.

    A measurement with fewer passes is compared with plain's passes over the same prompts.

    Raises:
        MeasureError: a level without a run, or with a figure that is no positive number.
    """
    levels = sorted({run.concurrency for run in baseline.runs if run.part == part})
    if not levels:
        raise MeasureError(f"{baseline.config}: no run over the {part} prompts to compare with")
    ratios: dict[int, float] = {}
    for level in levels:
        ours, plains = (figures(arm, level, part, figure) for arm in (measurement, baseline))
        if not ours:
            where = f"{measurement.config} at concurrency {level}"
            raise MeasureError(f"{where}: no run over the {part} prompts")
        same = [plains[repeat] for repeat in ours if repeat in plains] or list(plains.values())
        ratios[level] = statistics.median(ours.values()) / statistics.median(same)
    return ratios


def score(
    measurement: Measurement,
    baseline: Measurement,
    part: str = "tune",
    figure: Figure = throughput,
) -> float:
    """Log of the geometric mean of ``level_ratios``: 0 is as good as plain, 0.1 about 10 % better.

    Raises:
        MeasureError: as ``level_ratios``.
    """
    ratios = level_ratios(measurement, baseline, part, figure)
    return math.log(statistics.geometric_mean(ratios.values()))
