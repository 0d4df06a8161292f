"""What is shown on a terminal: progress while a study runs, and results at its end.

On a terminal a bar shows the passes of the arm at work; elsewhere each event is one plain line.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from autospec import metrics
from autospec.config import SpecConfig
from autospec.measure.harness import Progress as PassProgress
from autospec.profile import Profile
from autospec.report.tables import (
    acceptance_table,
    failures_text,
    points_table,
    profile_lines,
    study_table,
)
from autospec.tune.budget import Plan
from autospec.tune.study import Study, Trial
from autospec.tuning.prepare import Prepared

__all__ = ["TuneView", "print_profile", "print_result", "print_study"]


class TuneView:
    """A listener that shows a running study on standard error, which keeps output clean.

    Args:
        console: where to write; standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self._config: SpecConfig | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )
        self._task = self._bar.add_task("", total=None, visible=False)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def note(self, text: str) -> None:
        """Show a line."""
        self.console.print(text, markup=False)

    def planned(self, plan: Plan, prepared: Prepared) -> None:
        """Show what is going to happen."""
        environment = prepared.environment
        self.note(
            f"target    {prepared.request.model} on {environment.accelerator_count} x "
            f"{environment.accelerator} ({environment.device})"
        )
        parts = prepared.parts
        sizes = ", ".join(
            f"{len(part.prompts)} {part.name}" for part in (parts.warmup, parts.tune, parts.confirm)
        )
        self.note(f"prompts   {sizes}; concurrency {_listed(prepared.request.concurrencies)}")
        self.note(f"plan      {plan}")
        if prepared.refused:
            self.note(f"left out  {len(prepared.refused)} configurations that break a rule")

    def trial_started(self, number: int, config: SpecConfig, reason: str) -> None:
        """Show which configuration comes next, and why."""
        self._config = config
        self.note(f"[{number}] {config.label}: {reason}")
        self._bar.reset(self._task, description=config.label, total=None, visible=True)

    def phase(self, text: str) -> None:
        """Show what the arm is doing."""
        label = self._config.label if self._config else ""
        self._bar.update(self._task, description=f"{label}: {text}")
        if not self.console.is_terminal:
            self.note(f"    {text}")

    def pass_done(self, progress: PassProgress) -> None:
        """Show a finished pass."""
        run = progress.run
        self._bar.update(self._task, completed=progress.done, total=progress.total)
        length = metrics.accept_length(run.records)
        accept = f", accept length {length:.2f}" if length else ""
        self.note(
            f"    pass {progress.done}/{progress.total} concurrency {run.concurrency}: "
            f"{run.output_throughput:.1f} tok/s{accept}"
        )
        for warning in run.warnings:
            self.note(f"    warning: {warning}")

    def trial_finished(self, trial: Trial) -> None:
        """Show what came of a configuration."""
        self._bar.update(self._task, visible=False)
        if trial.error:
            self.note(f"    {trial.state}: {trial.error}")
        elif trial.value is not None and not trial.config.is_plain:
            self.note(f"    {_ratio(trial.value)} of plain decoding")


def print_result(profile: Profile, path: Path, study: Path) -> None:
    """Show a study's result: the table, the verdict, the profile and how to serve it."""
    console = _console()
    print_points(profile, console)
    console.print(f"verdict  {profile.verdict.decision}: {profile.verdict.reason}", markup=False)
    console.print(f"study    {study}", markup=False)
    console.print(f"profile  {path}", markup=False)
    console.print(f"serve    autospec serve {shlex.quote(str(path))}", markup=False)


def print_points(profile: Profile, console: Console) -> None:
    """Show the measured rows, part by part."""
    rows = [*profile.baseline, *profile.points]
    for part, title in (("tune", "Search prompts"), ("confirm", "Held-out prompts")):
        chosen = [row for row in rows if row.part == part]
        if chosen:
            console.print(points_table(chosen, title))
    for line in failures_text(profile.failed):
        console.print(line, markup=False)


def print_profile(profile: Profile) -> None:
    """Show a whole profile."""
    console = _console()
    for line in profile_lines(profile):
        console.print(line, markup=False)
    print_points(profile, console)
    table = acceptance_table(profile)
    if table is not None:
        console.print(table)


def print_study(study: Study) -> None:
    """Show the trials of a study, finished or not."""
    console = _console()
    console.print(study_table(study.trials()))
    console.print(f"time     {study.seconds_used() / 60:.1f} min in trials", markup=False)
    profile = study.folder / "profile.yaml"
    hint = f"autospec show {shlex.quote(str(profile))}"
    if not profile.is_file():
        hint = f"unfinished; go on with: autospec tune --resume {shlex.quote(str(study.folder))}"
    console.print(hint, markup=False)


def _console() -> Console:
    return Console(highlight=False, soft_wrap=False)


def _ratio(log_ratio: float) -> str:
    return f"{math.exp(log_ratio):.2f}x"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(str(number) for number in numbers)
