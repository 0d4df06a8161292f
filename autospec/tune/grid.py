"""A recorded grid: every configuration at every load, measured on one machine. Pure.

JSON lines: a header that says what it was recorded on, then one row for each pass: a
configuration, a concurrency and a repeat. What a search is tried on must be complete, so a launch
that failed has its rows too.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from autospec import metrics, schema
from autospec.config import SpecConfig
from autospec.errors import SchemaError
from autospec.evidence import Environment, Target, WorkloadSummary, require
from autospec.measurement import Percentiles, Run, ServerDelta
from autospec.tune.classes import ClassFigures, class_figures

__all__ = ["KIND", "Grid", "GridHeader", "GridRow", "read_grid", "row_of", "text_of"]

#: What the header's ``kind`` says.
KIND: Final = "autospec-grid"


@dataclass(frozen=True, slots=True)
class GridHeader:
    """What a grid was recorded on, and how.

    Attributes:
        created: when the recording began, in ISO format.
        command: what recorded it.
        target: the model, with the draft model's digest.
        environment: the machine and the engine.
        workload: the prompts, without any text of them.
        concurrencies: the loads, as requests in flight.
        repeats: passes at each load of a launch.
        requests_per_pass: concurrency -> prompts that a pass sends, as many of each class.
        max_new_tokens: longest answer.
        launches: the configuration of each launch, in the order made. Plain decoding stands there
            several times: what differs between its launches is the machine's noise.
    """

    created: str
    command: str
    target: Target
    environment: Environment
    workload: WorkloadSummary
    concurrencies: tuple[int, ...]
    repeats: int
    requests_per_pass: dict[int, int]
    max_new_tokens: int
    launches: tuple[SpecConfig, ...]
    kind: str = KIND
    schema: int = schema.SCHEMA

    def __post_init__(self) -> None:
        require(self.kind == KIND, "kind", repr(self.kind), repr(KIND))
        require(bool(self.concurrencies), "concurrencies", self.concurrencies, "at least one")
        require(self.repeats >= 1, "repeats", self.repeats, "at least 1")


@dataclass(frozen=True, slots=True)
class GridRow:
    """One pass.

    Attributes:
        launch: its server's place in the header's ``launches``, from 0.
        config: what ran, its draft model by name.
        concurrency: requests in flight.
        repeat: number of the pass at this load; the same repeat sent the same prompts.
        status: whether there are figures.
        reason: why there are none, in one line.
        launch_s: from starting the server to its readiness, s.
        pass_s: the pass with its warm-up, s.
        output_throughput: tokens/s in the steady-state window.
        tpot_ms: time per output token after the first.
        accept_length: tokens per verify step, bonus token included; None without speculation.
        correct_histogram: verify steps by number of correct drafts.
        server: decode steps as the server counted them, with the time of a step by batch size.
        classes: figures by class of the requests.
    """

    launch: int
    config: SpecConfig
    concurrency: int
    repeat: int
    status: Literal["complete", "failed"]
    reason: str = ""
    launch_s: float | None = None
    pass_s: float | None = None
    output_throughput: float | None = None
    tpot_ms: Percentiles | None = None
    accept_length: float | None = None
    correct_histogram: tuple[int, ...] = ()
    server: ServerDelta | None = None
    classes: tuple[ClassFigures, ...] = ()

    def __post_init__(self) -> None:
        complete = self.status == "complete"
        rate = self.output_throughput
        require(
            complete == (rate is not None), "output_throughput", rate, f"of a {self.status} row"
        )
        require(complete == (not self.reason), "reason", repr(self.reason), "given where it failed")
        require(rate is None or rate > 0, "output_throughput", rate, "above 0")


@dataclass(frozen=True, slots=True)
class Grid:
    """A header and its rows, in the order recorded."""

    header: GridHeader
    rows: tuple[GridRow, ...]

    @property
    def configs(self) -> tuple[SpecConfig, ...]:
        """Every configuration, plain decoding first."""
        return tuple(sorted(set(self.header.launches)))

    def cell(self, config: SpecConfig, concurrency: int) -> tuple[GridRow, ...]:
        """The complete rows of a configuration at a load, over all its launches."""
        return tuple(
            row
            for row in self.rows
            if (row.config, row.concurrency, row.status) == (config, concurrency, "complete")
        )

    def throughput(self, config: SpecConfig, concurrency: int) -> float | None:
        """Median tokens/s of a cell; None where the configuration did not run."""
        rates = [row.output_throughput or 0.0 for row in self.cell(config, concurrency)]
        return statistics.median(rates) if rates else None

    def finished(self) -> frozenset[int]:
        """The launches of which every row is there."""
        whole = len(self.header.concurrencies) * self.header.repeats
        made = [row.launch for row in self.rows]
        return frozenset(launch for launch in made if made.count(launch) == whole)

    def without_parts(self) -> Grid:
        """The same without the rows of launches that were not finished."""
        finished = self.finished()
        return Grid(self.header, tuple(row for row in self.rows if row.launch in finished))


def row_of(launch: int, config: SpecConfig, run: Run, *, launch_s: float, pass_s: float) -> GridRow:
    """A pass as a grid keeps it, in the fields' units."""
    return GridRow(
        launch=launch,
        config=config,
        concurrency=run.concurrency,
        repeat=run.repeat,
        status="complete",
        launch_s=launch_s,
        pass_s=pass_s,
        output_throughput=run.output_throughput,
        tpot_ms=metrics.latency_percentiles(run.records).get("tpot_ms"),
        accept_length=metrics.accept_length(run.records),
        correct_histogram=metrics.correct_histogram(run.records),
        server=run.server,
        classes=class_figures(run),
    )


def read_grid(path: Path) -> Grid:
    """Read a recorded grid; a last line that was cut off is left out.

    Raises:
        SchemaError: no such file, or a line that is no row of a grid, with its number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SchemaError(f"{path}: cannot be read ({error})") from error
    lines = text.split("\n")[:-1]
    if not lines:
        raise SchemaError(f"{path}: is empty, must begin with the header of a grid")
    data = _parse(lines[0], f"{path}, line 1")
    schema.check_version(data, f"{path}, line 1")
    header = schema.load(GridHeader, data, f"{path}, line 1")
    rows = [_read_row(line, f"{path}, line {n}") for n, line in enumerate(lines[1:], start=2)]
    for row, number in zip(rows, range(2, len(lines) + 1), strict=True):
        _check_row(header, row, f"{path}, line {number}")
    return Grid(header, tuple(rows))


def text_of(lines: Iterable[GridHeader | GridRow]) -> str:
    """Header or rows as lines of JSON, floats in six significant digits."""
    return "".join(
        json.dumps(_short(schema.dump(line)), allow_nan=False, separators=(",", ":")) + "\n"
        for line in lines
    )


def _parse(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except ValueError as error:
        raise SchemaError(f"{where}: not JSON ({error})") from error
    if not isinstance(data, dict):
        raise SchemaError(f"{where}: must be a mapping")
    return data


def _read_row(line: str, where: str) -> GridRow:
    return schema.load(GridRow, _parse(line, where), where)


def _check_row(header: GridHeader, row: GridRow, where: str) -> None:
    launches: Sequence[SpecConfig] = header.launches
    if not 0 <= row.launch < len(launches) or launches[row.launch] != row.config:
        raise SchemaError(f"{where}: {row.config} is not launch {row.launch} of the header")
    if row.concurrency not in header.concurrencies or not 0 <= row.repeat < header.repeats:
        raise SchemaError(
            f"{where}: concurrency {row.concurrency}, repeat {row.repeat} is not in the header"
        )


def _short(data: Any) -> Any:
    if isinstance(data, float):
        return float(f"{data:.6g}")
    if isinstance(data, dict):
        return {key: _short(item) for key, item in data.items()}
    return [_short(item) for item in data] if isinstance(data, list) else data
