"""One number for a measurement, against plain decoding. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Final

from autospec.errors import ConfigError, MeasureError
from autospec.measurement import Measurement

__all__ = ["OBJECTIVES", "Objective", "find_objective", "level_ratios", "score"]

#: (measurement, baseline, part) -> value, larger is better, 0 is plain decoding's own.
Objective = Callable[[Measurement, Measurement, str], float]


def level_ratios(
    measurement: Measurement, baseline: Measurement, part: str = "tune"
) -> dict[int, float]:
    """Concurrency -> median output throughput over plain's, for every level of the baseline.

    Raises:
        MeasureError: a level without a run, or with a throughput that is no positive number.
    """
    levels = sorted({run.concurrency for run in baseline.runs if run.part == part})
    if not levels:
        raise MeasureError(f"{baseline.config}: no run over the {part} prompts to compare with")
    return {
        level: _median(measurement, level, part) / _median(baseline, level, part)
        for level in levels
    }


def score(measurement: Measurement, baseline: Measurement, part: str = "tune") -> float:
    """Log of the geometric mean of ``level_ratios``: 0 is as fast as plain, 0.1 about 10 % faster.

    Raises:
        MeasureError: as ``level_ratios``.
    """
    return math.log(statistics.geometric_mean(level_ratios(measurement, baseline, part).values()))


#: Name on the command line -> objective.
OBJECTIVES: Final[Mapping[str, Objective]] = {"throughput": score}


def find_objective(name: str) -> Objective:
    """The objective of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in OBJECTIVES:
        raise ConfigError(f"unknown objective {name!r}, must be one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def _median(measurement: Measurement, level: int, part: str) -> float:
    throughputs = measurement.throughputs(level, part)
    where = f"{measurement.config} at concurrency {level}"
    if not throughputs:
        raise MeasureError(f"{where}: no run over the {part} prompts")
    median = statistics.median(throughputs)
    if not (math.isfinite(median) and median > 0):
        raise MeasureError(f"{where}: output throughput is {median} tokens/s, must be above 0")
    return median
