"""What a search is replayed on: a published table, a recorded grid, or synthetic worlds."""

from __future__ import annotations

import math
import re
import statistics
from pathlib import Path
from typing import Final

import numpy as np

from autospec.config import SpecConfig
from autospec.errors import ConfigError, SchemaError
from autospec.tune.grid import Grid, GridRow, read_grid
from autospec.tune.panels import read_panels
from autospec.tune.problems import Problem, Result
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.worlds import make_table, make_world

__all__ = ["grid_problem", "read_problems"]

_SYNTHETIC: Final = re.compile(r"(synthetic|synthetic-tables):(\d+)(?:-(\d+))?")
_MOST_PROBLEMS: Final = 10_000


def read_problems(table: str) -> tuple[Problem, ...]:
    """Read the problems of a table.

    Args:
        table: ``synthetic:SEED`` or ``synthetic:FIRST-LAST`` for worlds, ``synthetic-tables:`` and
            seeds for tables as they are published; or a file: a recorded grid, which begins with
            the JSON of its header, or else a published table.

    Raises:
        SchemaError: the file cannot be read or is neither.
        ConfigError: seeds that cannot be.
    """
    if table.startswith(("synthetic:", "synthetic-tables:")):
        return _synthetic(table)
    path = Path(table)
    try:
        with path.open("rb") as file:
            first = file.read(64).lstrip()
    except OSError as error:
        raise SchemaError(f"{path}: cannot be read ({error.strerror})") from error
    if first.startswith(b"{"):
        return (grid_problem(read_grid(path), path.stem),)
    return read_panels(path)


def grid_problem(grid: Grid, name: str) -> Problem:
    """A recorded grid as one problem: the geometric mean of the throughputs at its loads.

    A configuration that did not run at one of the loads did not run; one whose launch is not
    recorded is no arm. A trial draws, by its seed, passes of each cell with replacement: what
    another day might have shown. The same seed draws the same repeats of every configuration,
    since a search sends the same prompts to all.

    Raises:
        SchemaError: plain decoding did not run.
    """
    levels = grid.header.concurrencies
    truth: dict[SpecConfig, float | None] = {}
    recorded = {row.config for row in grid.rows}
    for config in (config for config in grid.configs if config in recorded):
        speeds = [grid.throughput(config, level) for level in levels]
        ran = [speed for speed in speeds if speed is not None]
        truth[config] = statistics.geometric_mean(ran) if len(ran) == len(levels) else None
    if not any(config.is_plain and speed for config, speed in truth.items()):
        raise SchemaError(f"{name}: plain decoding did not run at every load of the grid")
    places = {config: place for place, config in enumerate(sorted(truth))}

    def reveal(config: SpecConfig, seed: int) -> Result:
        if truth[config] is None:
            return Result(None)
        rng = np.random.default_rng([seed, places[config]])
        cells = [grid.cell(config, level) for level in levels]
        repeats = np.random.default_rng(seed).integers(
            grid.header.repeats, size=(len(levels), grid.header.repeats)
        )
        return _trial(cells, repeats.tolist(), rng)

    return Problem(name, truth, reveal)


def _trial(
    cells: list[tuple[GridRow, ...]], repeats: list[list[int]], rng: np.random.Generator
) -> Result:
    drawn = [
        [_pass(cell, repeat, rng) for repeat in wanted]
        for cell, wanted in zip(cells, repeats, strict=True)
    ]
    loads = tuple(_load(rows, cell) for rows, cell in zip(drawn, cells, strict=True))
    histogram: list[int] = []
    for row in (row for rows in drawn for row in rows):
        histogram += [0] * (len(row.correct_histogram) - len(histogram))
        for correct, count in enumerate(row.correct_histogram):
            histogram[correct] += count
    steps = sum(histogram)
    rates = tuple(sum(histogram[d:]) / steps for d in range(1, len(histogram))) if steps else ()
    launches = {row.launch: row.launch_s or 0.0 for cell in cells for row in cell}
    seen = Seen(
        loads,
        1 + sum(rates) if steps else None,
        rates,
        steps or None,
        error=_error(cells, len(repeats[0])),
        launch_s=statistics.fmean(launches.values()),
        passes_s=sum(row.pass_s or 0.0 for rows in drawn for row in rows),
    )
    return Result(statistics.geometric_mean(load.throughput for load in loads), seen)


def _pass(cell: tuple[GridRow, ...], repeat: int, rng: np.random.Generator) -> GridRow:
    """One pass of a repeat, of any launch; of any repeat where that one is not there."""
    rows = [row for row in cell if row.repeat == repeat] or list(cell)
    return rows[int(rng.integers(len(rows)))]


def _load(rows: list[GridRow], cell: tuple[GridRow, ...]) -> LoadSeen:
    throughput = statistics.median(row.output_throughput or 0.0 for row in rows)
    counts = [row.server for row in rows if row.server is not None]
    steps = sum(count.num_steps for count in counts)
    if not steps:
        return LoadSeen(cell[0].concurrency, throughput)
    return LoadSeen(
        cell[0].concurrency,
        throughput,
        sum(count.num_steps * count.batch_size for count in counts) / steps,
        sum(count.num_steps * count.step_time_ms for count in counts) / steps,
    )


def _error(cells: list[tuple[GridRow, ...]], drawn: int) -> float:
    """Standard error of a trial that draws so many passes of each cell."""
    squares = 0.0
    for cell in cells:
        logs = [math.log(row.output_throughput or 1.0) for row in cell]
        squares += statistics.variance(logs) / drawn if len(logs) > 1 else 0.0
    return math.sqrt(squares) / len(cells)


def _synthetic(table: str) -> tuple[Problem, ...]:
    found = _SYNTHETIC.fullmatch(table)
    if found is None:
        kind = table.partition(":")[0]
        raise ConfigError(f"table {table!r} must be {kind}:SEED or {kind}:FIRST-LAST")
    first, last = int(found[2]), int(found[3] or found[2])
    if not 0 <= last - first < _MOST_PROBLEMS:
        raise ConfigError(
            f"table {table!r}: the last seed must be at least the first and at most "
            f"{_MOST_PROBLEMS - 1} above it"
        )
    make = make_world if found[1] == "synthetic" else make_table
    return tuple(make(seed) for seed in range(first, last + 1))
