"""Results on standard output: a finished study, a profile, a study at any time."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console

from autospec.profile import STUDY_PROFILE, Profile
from autospec.report.tables import (
    acceptance_table,
    evidence_lines,
    failures_text,
    points_table,
    policy_line,
    profile_lines,
    study_table,
)
from autospec.report.winners import schedule_line, stopped_lines, winners_table
from autospec.tune.study import Study

__all__ = ["print_profile", "print_result", "print_study"]


def print_result(profile: Profile, path: Path, study: Path) -> None:
    """Show a study's result: the table, the verdict, the profile, and what comes next."""
    console = _console()
    print_points(profile, console)
    console.print(f"verdict   {profile.verdict.decision}: {profile.verdict.reason}", markup=False)
    for line in evidence_lines(profile):
        console.print(line, markup=False)
    console.print(f"study     {study}", markup=False)
    console.print(f"profile   {path}", markup=False)
    console.print(policy_line(path), markup=False)
    where = shlex.quote(str(study))
    console.print(f"report    autospec report {where} -o report.html", markup=False)
    console.print(_serve_line(path), markup=False)


def print_points(profile: Profile, console: Console) -> None:
    """Show the measured rows, part by part, and what was not measured to the end."""
    rows = [*profile.baseline, *profile.points]
    for part, title in (("tune", "Search prompts"), ("confirm", "Held-out prompts")):
        chosen = [row for row in rows if row.part == part]
        if chosen:
            console.print(points_table(chosen, title, profile.verdict.objective))
    table = winners_table(profile)
    if table is not None:
        console.print(table)
    lines = (schedule_line(profile), *stopped_lines(profile), *failures_text(profile.failed))
    for line in filter(None, lines):
        console.print(line, markup=False)


def print_profile(profile: Profile, path: Path) -> None:
    """Show a whole profile, and which policy goes with it."""
    console = _console()
    for line in (*profile_lines(profile), policy_line(path)):
        console.print(line, markup=False)
    print_points(profile, console)
    table = acceptance_table(profile)
    if table is not None:
        console.print(table)
    console.print(_serve_line(path), markup=False)


def print_study(study: Study) -> None:
    """Show the trials of a study, finished or not."""
    console = _console()
    console.print(study_table(study.trials()))
    for trial in study.trials():
        if trial.error:
            console.print(f"[{trial.id}] {trial.config.label}: {trial.error}", markup=False)
    console.print(f"time     {study.seconds_used() / 60:.1f} min in trials", markup=False)
    profile = study.folder / STUDY_PROFILE
    hint = f"autospec show {shlex.quote(str(profile))}"
    if not profile.is_file():
        hint = f"unfinished; go on with: autospec tune --resume {shlex.quote(str(study.folder))}"
    console.print(hint, markup=False)


def _serve_line(profile: Path) -> str:
    return f"serve     autospec serve {shlex.quote(str(profile))}"


def _console() -> Console:
    return Console(highlight=False, soft_wrap=False)
