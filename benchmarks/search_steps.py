"""How well the law of step times knows shapes of a recorded grid that were not timed."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autospec.config import SpecConfig
from autospec.tune.grid import Grid
from autospec.tune.problems import Problem
from autospec.tune.samplers import make_sampler
from autospec.tune.seen import Seen
from autospec.tune.shapes import method, shape_of
from autospec.tune.stepparts import Timed
from autospec.tune.steptime import StepTimes, fit_step_times


@dataclass(frozen=True, slots=True)
class StepErrors:
    """Mean relative errors of step times at every load, against all that was recorded of a cell.

    Attributes:
        longest: of a fit to plain decoding and the longest chain of each method, the runs that also
            show how acceptance falls, as recorded; over the other shapes.
        asked: of a fit to single passes of the three shapes that a search asked for first, over the
            other shapes.
        every: of a fit to every cell: noise, and what the form of the law cannot follow.
    """

    longest: float
    asked: float
    every: float


def step_errors(grid: Grid, problem: Problem, seeds: range) -> StepErrors:
    """How well the law of step times knows shapes that were not timed."""
    cells = {config: recorded_timings(grid, config) for config in problem.truth}
    methods = [method(config) for config in cells]

    def errors(told: Collection[SpecConfig], shown: Sequence[Timed]) -> list[float]:
        others = [timed for config in cells.keys() - set(told) for timed in cells[config]]
        return misses(fit_step_times(shown, methods), others)

    ends = longest_chains(cells)
    asked: list[float] = []
    for seed in seeds:
        told = first_three(problem, seed)
        shown = [timed for config, seen in told.items() for timed in timings(config, seen)]
        asked += errors(told, shown)
    every = [timed for found in cells.values() for timed in found]
    return StepErrors(
        statistics.fmean(errors(ends, [timed for config in ends for timed in cells[config]])),
        statistics.fmean(asked),
        statistics.fmean(misses(fit_step_times(every, methods), every)),
    )


def longest_chains(configs: Iterable[SpecConfig]) -> list[SpecConfig]:
    """The chain of most drafts of each method; that of plain decoding is plain decoding."""
    chains = [config for config in configs if config.is_chain]
    return [
        max(same, key=lambda config: shape_of(config).depth)
        for _, same in itertools.groupby(sorted(chains, key=method), key=method)
    ]


def first_three(problem: Problem, seed: int) -> dict[SpecConfig, Seen]:
    """What a search sees of the first three shapes that it asks for."""
    sampler = make_sampler("structured", sorted(problem.truth), seed)
    told: dict[SpecConfig, Seen] = {}
    while len(told) < 3 and (proposal := sampler.ask()) is not None:
        result = problem.reveal(proposal.config, seed)
        value = None if result.throughput is None else float(np.log(result.throughput))
        sampler.tell(proposal.config, value, result.seen)
        if result.seen is not None:
            told[proposal.config] = result.seen
    return told


def misses(model: StepTimes, measured: Sequence[Timed]) -> list[float]:
    """Relative errors, without their signs."""
    return [
        abs(model.time(timed.shape, timed.batch_size)[0] / timed.step_time - 1)
        for timed in measured
    ]


def recorded_timings(grid: Grid, config: SpecConfig) -> list[Timed]:
    """The step times of a configuration, each the median of its passes.

    What else runs on a machine lengthens single passes, by up to a half in this grid.
    """
    found = []
    for level in grid.header.concurrencies:
        counts = [row.server for row in grid.cell(config, level) if row.server is not None]
        if counts:
            batch_size = statistics.fmean(count.batch_size for count in counts)
            step_ms = statistics.median(count.step_time_ms for count in counts)
            found.append(Timed(shape_of(config), batch_size, step_ms))
    return found


def timings(config: SpecConfig, seen: Seen) -> list[Timed]:
    """The step times that a trial shows."""
    return [
        Timed(shape_of(config), load.batch_size or load.load, load.step_time_ms)
        for load in seen.loads
        if load.step_time_ms is not None
    ]
