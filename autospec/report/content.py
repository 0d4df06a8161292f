"""What a report is about: a profile, a study, or both, gathered once for every form of it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from autospec import schema
from autospec.config import SpecConfig
from autospec.evidence import Acceptance, Point, StepTime
from autospec.measurement import Measurement
from autospec.profile import STUDY_PROFILE, Profile, load_profile
from autospec.report.predicted import Prediction, predict
from autospec.tune.seen import seen_of
from autospec.tune.study import Study, Trial
from autospec.tuning import points

__all__ = ["Content", "StepFit", "TrialRow", "environment_rows", "gather"]

#: Lines of a log's end that a report shows.
_LOG_LINES: Final = 40
#: Trials that the cost model is tried on.
_MOST_PREDICTED: Final = 40


@dataclass(frozen=True, slots=True)
class TrialRow:
    """One trial as a reader sees it.

    Attributes:
        id: its number in the study.
        kind: ``tune``, ``noise``, ``confirm`` or ``check``.
        config: what was tried.
        state: how it ended.
        reason: why it was tried.
        seconds: what it took; None while it runs.
        began_s: time in trials before it.
        vs_plain: its objective over plain decoding's, a ratio; None where there is none.
        error: why it failed or was stopped, one line.
        log_tail: last lines of the server's log, when it failed.
    """

    id: int
    kind: str
    config: SpecConfig
    state: str
    reason: str
    seconds: float | None
    began_s: float
    vs_plain: float | None = None
    error: str | None = None
    log_tail: str | None = None


@dataclass(frozen=True, slots=True)
class StepFit:
    """A line through the step times of one configuration, by least squares.

    Attributes:
        config: what ran.
        floor_ms: time that a step takes however small the batch is.
        slope_ms: by how much each request in the batch adds to it.
        worst: the largest distance of a measured time from the line, a fraction of that time.
    """

    config: SpecConfig
    floor_ms: float
    slope_ms: float
    worst: float


@dataclass(frozen=True, slots=True)
class Content:
    """Everything a report shows.

    Attributes:
        name: of the file or folder it was made from.
        profile: None while a study has none.
        points: every configuration at every load, plain decoding first.
        acceptance: of the best configuration, over all prompts and by class.
        step_times: by configuration and load.
        fits: a line for each configuration with several batch sizes.
        trials: the search path; empty where only a profile is at hand.
        predictions: of the cost model, of arms that it was not shown; a study's only.
        commands: how to make, go on with, or use it.
    """

    name: str
    profile: Profile | None
    points: tuple[Point, ...]
    acceptance: tuple[Acceptance, ...]
    step_times: tuple[StepTime, ...]
    fits: tuple[StepFit, ...]
    trials: tuple[TrialRow, ...]
    commands: tuple[str, ...]
    predictions: tuple[Prediction, ...] = ()
    schema: int = 1

    @property
    def best(self) -> SpecConfig | None:
        """The best configuration that was found, deployed or not."""
        if self.profile is not None:
            return self.profile.verdict.best
        ranked = [row for row in self.trials if row.vs_plain and row.kind == "tune"]
        ranked = [row for row in ranked if not row.config.is_plain]
        return max(ranked, key=lambda row: row.vs_plain or 0).config if ranked else None

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        if self.profile is None:
            ended = sum(row.state in ("complete", "pruned") for row in self.trials)
            return f"unfinished: {ended} trials have ended, nothing is decided yet"
        return f"{self.profile.verdict.decision}: {self.profile.verdict.reason}"


def gather(path: Path) -> Content:
    """Read a profile, or a study finished or not.

    Raises:
        SchemaError: the profile cannot be read.
        StudyError: the folder is no study.
    """
    if path.is_dir():
        with Study.open(path) as study:
            return _of_study(study)
    profile = load_profile(path)
    return _content(path.name, profile, _Rows.of(profile), (), _commands(profile, path))


def environment_rows(content: Content) -> list[tuple[str, str]]:
    """What is known of the machine and the software, a name and a value each."""
    if content.profile is None:
        return []
    found = schema.dump(content.profile.environment)
    return [(name.replace("_", " "), str(value)) for name, value in found.items() if value != ""]


@dataclass(frozen=True, slots=True)
class _Rows:
    """The measured rows of a report."""

    points: tuple[Point, ...]
    acceptance: tuple[Acceptance, ...]
    step_times: tuple[StepTime, ...]

    @classmethod
    def of(cls, profile: Profile) -> _Rows:
        """What a profile keeps."""
        return cls((*profile.baseline, *profile.points), profile.acceptance, profile.step_times)


def _of_study(study: Study) -> Content:
    path = study.folder / STUDY_PROFILE
    profile = load_profile(path) if path.is_file() else None
    trials = study.trials()
    rows = _study_rows(study, trials, profile)
    if profile is not None:
        commands = _commands(profile, path)
    else:
        commands = (f"autospec tune --resume {shlex.quote(str(study.folder))}",)
    content = _content(study.folder.name, profile, rows, _trial_rows(trials), commands)
    return replace(content, predictions=_predictions(study, trials))


def _study_rows(study: Study, trials: Iterable[Trial], profile: Profile | None) -> _Rows:
    """The profile's rows first, since they are whole, then those of every other trial."""
    known = _Rows.of(profile) if profile is not None else _Rows((), (), ())
    shown = {(point.config, point.part) for point in known.points}
    timed = {row.config for row in known.step_times}
    outlines = [
        study.outline(trial.id)
        for trial in trials
        if trial.kind == "tune" and trial.state in ("complete", "pruned")
    ]
    plain = next((outline for outline in outlines if outline.config.is_plain), None)
    more = [outline for outline in outlines if (outline.config, "tune") not in shown]
    rows = [row for outline in more for row in _points(outline, plain)]
    times = points.step_times(outline for outline in outlines if outline.config not in timed)
    acceptance = known.acceptance or _acceptance(study, trials)
    return _Rows((*known.points, *rows), acceptance, (*known.step_times, *times))


def _predictions(study: Study, trials: Iterable[Trial]) -> tuple[Prediction, ...]:
    """Of the first trials that were measured in full: the cost model must see their requests."""
    whole = [trial for trial in trials if trial.kind == "tune" and trial.state == "complete"]
    return predict(
        [
            (trial.config, seen_of(study.outline(trial.id, requests=True)))
            for trial in whole[:_MOST_PREDICTED]
        ]
    )


def _points(outline: Measurement, plain: Measurement | None) -> tuple[Point, ...]:
    if plain is None or outline.config.is_plain:
        return points.points(outline, "tune")
    return points.points(outline, "tune", points.versus(outline, plain, "tune"))


def _acceptance(study: Study, trials: Iterable[Trial]) -> tuple[Acceptance, ...]:
    """Of the best trial so far."""
    ranked = [
        trial
        for trial in trials
        if trial.kind == "tune" and trial.state == "complete" and not trial.config.is_plain
    ]
    if not ranked:
        return ()
    best = max(ranked, key=lambda trial: trial.value or -math.inf)
    return points.acceptance([study.measurement(best.id)])


def _trial_rows(trials: Iterable[Trial]) -> tuple[TrialRow, ...]:
    rows: list[TrialRow] = []
    spent = 0.0
    for trial in trials:
        tail = "\n".join((trial.log_tail or "").splitlines()[-_LOG_LINES:])
        rows.append(
            TrialRow(
                id=trial.id,
                kind=trial.kind,
                config=trial.config,
                state=trial.state,
                reason=trial.reason,
                seconds=trial.seconds,
                began_s=spent,
                vs_plain=None if trial.value is None else math.exp(trial.value),
                error=trial.error,
                log_tail=tail or None,
            )
        )
        spent += trial.seconds or 0.0
    return tuple(rows)


def _content(
    name: str,
    profile: Profile | None,
    rows: _Rows,
    trials: tuple[TrialRow, ...],
    commands: tuple[str, ...],
) -> Content:
    ordered = _ordered(rows.points)
    place = {point.config: number for number, point in reversed([*enumerate(ordered)])}
    timed = sorted(rows.step_times, key=lambda row: place.get(row.config, len(ordered)))
    return Content(
        name=name,
        profile=profile,
        points=ordered,
        acceptance=rows.acceptance,
        step_times=tuple(timed),
        fits=_fits(timed),
        trials=trials,
        commands=commands,
    )


def _ordered(rows: Sequence[Point]) -> tuple[Point, ...]:
    """Plain decoding first, then from best to worst by the geometric mean of the ratios."""
    logs: dict[SpecConfig, list[float]] = {}
    for row in rows:
        logs.setdefault(row.config, [])
        if row.vs_plain is not None:
            logs[row.config].append(math.log(row.vs_plain.value))
    score = {config: sum(found) / max(1, len(found)) for config, found in logs.items()}
    key = {config: (not config.is_plain, -score[config], config) for config in logs}
    return tuple(sorted(rows, key=lambda row: (*key[row.config], row.part, row.concurrency)))


def _fits(rows: Iterable[StepTime]) -> tuple[StepFit, ...]:
    by_config: dict[SpecConfig, list[StepTime]] = {}
    for row in rows:
        by_config.setdefault(row.config, []).append(row)
    fits = [_fit(config, found) for config, found in by_config.items()]
    return tuple(fit for fit in fits if fit is not None)


def _fit(config: SpecConfig, rows: Sequence[StepTime]) -> StepFit | None:
    """Steps weigh by how many were counted; None where all batches were of one size."""
    batch = np.array([row.batch_size for row in rows])
    time = np.array([row.step_time_ms for row in rows])
    if len(rows) < 2 or np.ptp(batch) < 0.5:
        return None
    weights = np.sqrt([row.num_steps for row in rows])
    slope, floor = np.polyfit(batch, time, 1, w=weights)
    worst = float(np.max(np.abs(floor + slope * batch - time) / time))
    return StepFit(config, points.short(float(floor)), points.short(float(slope)), worst)


def _commands(profile: Profile, path: Path) -> tuple[str, ...]:
    return profile.provenance.command, f"autospec serve {shlex.quote(str(path))}"
