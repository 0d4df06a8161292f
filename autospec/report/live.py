"""What is shown while a study runs, on standard error, so that standard output stays clean.

On a terminal: a table of the arms that grows with each pass, and a bar for the arm at work.
Elsewhere: one plain line an event.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from autospec import metrics
from autospec.config import SpecConfig
from autospec.measure.harness import Progress as PassProgress
from autospec.measurement import RequestRecord
from autospec.report.tables import rate, times
from autospec.tune.budget import Plan, format_duration
from autospec.tune.study import Trial
from autospec.tuning.prepare import Prepared

__all__ = ["TuneView"]

#: Rows of the live table beside plain decoding and the arm at work: the best ones.
_BEST_SHOWN: Final = 6


@dataclass(slots=True)
class _Row:
    """One arm as far as it has come."""

    config: SpecConfig
    state: str = "running"
    value: float | None = None
    throughputs: dict[int, list[float]] = field(default_factory=dict)
    records: list[RequestRecord] = field(default_factory=list)


@dataclass(slots=True)
class _Pace:
    """How long the planned work takes in fact."""

    plan: Plan
    since_s: float
    done: int = 0

    def left_s(self, now_s: float) -> float:
        """Seconds left, at the pace of the trials since the plan; 0 or less where it is over."""
        expected_s = self.done * self.plan.cost.trial_s
        return (self.plan.expected_s - expected_s) * (now_s - self.since_s) / expected_s


class TuneView:
    """A listener that shows a running study; use it in ``with``.

    Args:
        console: where to write; standard error by default.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self, console: Console | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._now = now
        self._began_s = now()
        self._pace: _Pace | None = None
        self._levels: tuple[int, ...] = ()
        self._rows: dict[int, _Row] = {}
        self._current: _Row | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        self._task = self._bar.add_task("", total=None)
        self._live = Live(console=self.console, transient=True, auto_refresh=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """Show a line."""
        self.console.print(text, markup=False, highlight=False)

    def planned(self, plan: Plan, prepared: Prepared) -> None:
        """Show what is going to happen."""
        environment, parts = prepared.environment, prepared.parts
        self._pace = _Pace(plan, self._now())
        self._levels = prepared.request.concurrencies
        machine = f"{environment.accelerator_count} x {environment.accelerator}"
        sizes = ", ".join(
            f"{len(part.prompts)} {part.name}" for part in (parts.warmup, parts.tune, parts.confirm)
        )
        self.note(f"target    {prepared.request.model} on {machine} ({environment.device})")
        self.note(f"prompts   {sizes}; concurrency {', '.join(map(str, self._levels))}")
        self.note(f"plan      {plan}")
        if prepared.refused:
            self.note(f"left out  {len(prepared.refused)} configurations that break a rule")

    def trial_started(self, number: int, config: SpecConfig, reason: str) -> None:
        """Show which configuration comes next, and why."""
        self._current = self._rows[number] = _Row(config)
        self.note(f"[{number}] {config.label}: {reason}{self._time()}")
        self._bar.reset(self._task, description="launching", total=None)
        self._refresh()

    def phase(self, text: str) -> None:
        """Show what the arm is doing."""
        self._bar.update(self._task, description=text)
        if not self.console.is_terminal:
            self.note(f"    {text}")

    def pass_done(self, progress: PassProgress) -> None:
        """Show a finished pass."""
        run = progress.run
        if self._current is not None:
            self._current.records += run.records
            self._current.throughputs.setdefault(run.concurrency, []).append(run.output_throughput)
        self._bar.update(self._task, completed=progress.done, total=progress.total)
        if not self.console.is_terminal:
            length = metrics.accept_length(run.records)
            accept = f", accept length {length:.2f}" if length else ""
            self.note(
                f"    pass {progress.done}/{progress.total} at concurrency {run.concurrency}: "
                f"{run.output_throughput:.1f} tok/s{accept}"
            )
        for warning in run.warnings:
            self.note(f"    warning: {warning}")
        self._refresh()

    def trial_finished(self, trial: Trial) -> None:
        """Show what came of a configuration."""
        row = self._rows[trial.id]
        if self._pace is not None:
            self._pace.done += 1
        row.state, row.value = trial.state, trial.value
        if trial.error:
            self.note(f"    {trial.state}: {trial.error}")
        elif trial.value is not None and not trial.config.is_plain:
            self.note(f"    {times(trial.value)} of plain decoding")
        self._refresh()

    def _time(self) -> str:
        """Time gone, and what is left at the pace so far."""
        now_s = self._now()
        if self._pace is None or not self._pace.done:
            return ""
        text = f"; {format_duration(now_s - self._began_s)} gone"
        left_s = self._pace.left_s(now_s)
        return f"{text}, about {format_duration(left_s)} left" if left_s > 0 else text

    def _refresh(self) -> None:
        if self.console.is_terminal:
            self._live.update(Group(self._table(), self._bar), refresh=True)

    def _table(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("tok/s at each concurrency", overflow="fold")
        for heading in (*(f"@{level}" for level in self._levels), "accept", "vs plain"):
            table.add_column(heading, justify="right", no_wrap=True)
        for row in self._shown():
            length = metrics.accept_length(row.records)
            table.add_row(
                row.config.label,
                *(_median(row.throughputs.get(level, ())) for level in self._levels),
                f"{length:.2f}" if length else "-",
                row.state if row.value is None else times(row.value),
            )
        return table

    def _shown(self) -> list[_Row]:
        """Plain decoding, the best so far, and the arm at work; a terminal has few lines."""
        rows = list(self._rows.values())
        plain = [row for row in rows if row.config.is_plain][:1]
        others = [row for row in rows if row not in plain and row is not self._current]
        others.sort(key=lambda row: row.value if row.value is not None else float("-inf"))
        best = others[-_BEST_SHOWN:][::-1]
        at_work = [self._current] if self._current and self._current not in plain else []
        return [*plain, *best, *at_work]


def _median(values: Iterable[float]) -> str:
    values = list(values)
    return rate(statistics.median(values)) if values else "-"
