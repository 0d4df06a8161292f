"""A study at rest: a folder with one SQLite file, a row a trial.

Each change is one transaction on disk before the call returns, so that a study killed at any point
opens again with every trial that had been reported. A row that has ended is never changed: the
database itself refuses it.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from autospec import schema
from autospec.config import SpecConfig
from autospec.errors import AutospecError, MeasureError, SchemaError, StudyError
from autospec.measurement import Measurement
from autospec.tune.database import (
    DATABASE,
    Meta,
    check_empty,
    connect,
    take_lock,
    write_new,
    writing,
)

__all__ = ["Study", "Trial"]

_TRIALS: Final = (
    "SELECT id, kind, config, state, reason, started, ended, seconds, value, error, log_tail"
    " FROM trials"
)
_ENDED: Final = frozenset({"complete", "failed", "pruned"})


@dataclass(frozen=True, slots=True)
class Trial:
    """One evaluated configuration; its measurement is read by ``Study.measurement``.

    Attributes:
        id: number of the trial in its study, from 1.
        kind: ``tune``, ``noise`` (plain decoding once more), ``confirm``, or ``check`` (only the
            answers are asked for).
        config: what was tried.
        state: ``running``, ``complete``, ``failed``, ``pruned``, or ``interrupted`` when its
            session ended before it did.
        reason: why it was tried.
        started: Unix time in seconds.
        ended: Unix time in seconds, None while running.
        seconds: what it took on the session's clock, None while running.
        value: the objective, where there is one.
        error: one line: why it failed, or why it was stopped early when it is ``pruned``.
        log_tail: last lines of the server's log, when it failed.
    """

    id: int
    kind: str
    config: SpecConfig
    state: str
    reason: str
    started: float
    ended: float | None
    seconds: float | None
    value: float | None
    error: str | None
    log_tail: str | None

    @property
    def has_ended(self) -> bool:
        """Whether it came to a result, if only that it failed."""
        return self.state in _ENDED


class Study:
    """An open study. ``Study.create`` and ``Study.open`` give one; close it, or use ``with``.

    Any number of readers may open a study; the first change locks it for its writer.

    Attributes:
        folder: where it lives; logs and the final profile may stand beside the database.
        created: when it began, as Unix time in seconds.
        request: what was asked for, as JSON holds it.
    """

    def __init__(
        self,
        folder: Path,
        connection: sqlite3.Connection,
        meta: Meta,
        lock: int | None,
        now: Callable[[], float],
    ) -> None:
        self.folder = folder
        self.created = meta.created
        self.request = meta.request
        self._path = folder / DATABASE
        self._connection = connection
        self._lock = lock
        self._now = now

    @classmethod
    def create(
        cls, folder: Path, request: dict[str, Any], *, now: Callable[[], float] = time.time
    ) -> Self:
        """Begin a study in a new or empty folder, and lock it.

        Args:
            folder: made when it is missing.
            request: what the study is asked for; must be JSON.
            now: Unix time in seconds.

        Raises:
            StudyError: the folder holds a study or other files, or is in use.
            StorageError: it cannot be written.
        """
        check_empty(folder)
        lock = take_lock(folder)
        try:
            # Another session may have created one before this one had the lock.
            check_empty(folder)
            write_new(folder, request, now())
            return cls(folder, *connect(folder), lock, now)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def open(cls, folder: Path, *, now: Callable[[], float] = time.time) -> Self:
        """Open a study to read it or, after ``lock``, to go on with it.

        Raises:
            StudyError: no study is there, or one that this autospec cannot read.
        """
        return cls(folder, *connect(folder), None, now)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database and give up the lock."""
        self._connection.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def lock(self) -> None:
        """Make this the only autospec that changes the study, until ``close`` or death.

        Raises:
            StudyError: another one has it.
        """
        if self._lock is None:
            self._lock = take_lock(self.folder)

    def start(self, config: SpecConfig, kind: str, reason: str) -> int:
        """Record that a trial begins, of one of the kinds that ``Trial`` names; gives its id."""
        cursor = self._change(
            "INSERT INTO trials (kind, config, state, reason, started)"
            " VALUES (?, ?, 'running', ?, ?)",
            (kind, str(config), reason, self._now()),
        )
        return int(cursor.lastrowid or 0)

    def complete(
        self, trial_id: int, measurement: Measurement, value: float | None, seconds: float
    ) -> None:
        """Record the result of a running trial; one that was stopped early is ``pruned``.

        Args:
            trial_id: what ``start`` gave.
            measurement: everything measured.
            value: the objective, or None where there is none.
            seconds: what the trial took.

        Raises:
            MeasureError: a number in it is not finite; the trial is still running.
        """
        try:
            text = json.dumps(schema.dump(measurement), separators=(",", ":"), allow_nan=False)
        except ValueError as error:
            raise MeasureError(f"{measurement.config}: a measured number is not finite") from error
        if value is not None and not math.isfinite(value):
            raise MeasureError(f"{measurement.config}: its value is {value}, must be finite")
        state = "pruned" if measurement.stopped else "complete"
        self._end(
            "UPDATE trials SET state = ?, ended = ?, seconds = ?, value = ?,"
            " measurement = ?, error = ? WHERE id = ? AND state = 'running'",
            (state, self._now(), seconds, value, text, measurement.stopped or None, trial_id),
        )

    def fail(self, trial_id: int, error: str, log_tail: str, seconds: float) -> None:
        """Record why a running trial could not be measured, in one line, with the log's end."""
        self._end(
            "UPDATE trials SET state = 'failed', ended = ?, seconds = ?, error = ?, log_tail = ?"
            " WHERE id = ? AND state = 'running'",
            (self._now(), seconds, error, log_tail, trial_id),
        )

    def put_back(self, trial_id: int, seconds: float) -> None:
        """Record that a running trial was interrupted; its configuration waits to be measured."""
        self._end(
            "UPDATE trials SET state = 'interrupted', ended = ?, seconds = ?"
            " WHERE id = ? AND state = 'running'",
            (self._now(), seconds, trial_id),
        )

    def trials(self, kind: str | None = None) -> tuple[Trial, ...]:
        """All trials, or those of one kind, in the order in which they began."""
        trials = [self._trial(row) for row in self._read(f"{_TRIALS} ORDER BY id")]
        return tuple(trial for trial in trials if kind in (None, trial.kind))

    def trial(self, trial_id: int) -> Trial:
        """One trial.

        Raises:
            StudyError: there is none of that number.
        """
        rows = self._read(f"{_TRIALS} WHERE id = ?", (trial_id,))
        if not rows:
            raise StudyError(f"{self.folder}: there is no trial {trial_id}")
        return self._trial(rows[0])

    def measurement(self, trial_id: int) -> Measurement:
        """The measurement of a trial that is complete or was stopped early.

        Raises:
            StudyError: the trial has none, or it cannot be read.
        """
        return self._load("SELECT measurement FROM trials WHERE id = ?", trial_id)

    def outline(self, trial_id: int, *, requests: bool = False) -> Measurement:
        """The same without what is nearly all of it, so that many are quick to read.

        Args:
            trial_id: what ``start`` gave.
            requests: keep the requests' records, without the times of their chunks.

        Raises:
            StudyError: as ``measurement`` does.
        """
        light = "json_remove(record.value, '$.chunk_s', '$.chunk_tokens')"
        kept = f"(SELECT json_group_array({light}) FROM json_each(run.value, '$.records') record)"  # noqa: S608 -- no text of others
        records = kept if requests else "json('[]')"
        return self._load(
            f"SELECT json_set(measurement, '$.runs', (SELECT json_group_array("  # noqa: S608 -- the same
            f"json_set(run.value, '$.records', {records}))"
            " FROM json_each(measurement, '$.runs') run)) FROM trials WHERE id = ?",
            trial_id,
        )

    def recover(self) -> tuple[Trial, ...]:
        """Put back what a dead session left running.

        Returns:
            The last interrupted trial of each (kind, configuration) that has no result since:
            what must be measured again, in the order in which it was begun.
        """
        self._change(
            "UPDATE trials SET state = 'interrupted', ended = ?, seconds = 0"
            " WHERE state = 'running'",
            (self._now(),),
        )
        waiting: dict[tuple[str, SpecConfig], Trial] = {}
        for trial in self.trials():
            waiting.pop((trial.kind, trial.config), None)
            if not trial.has_ended:
                waiting[trial.kind, trial.config] = trial
        return tuple(waiting.values())

    def seconds_used(self) -> float:
        """Time spent on trials by all sessions, in s; a trial lost to SIGKILL counts as nothing."""
        return float(self._read("SELECT TOTAL(seconds) FROM trials")[0][0])

    def _load(self, statement: str, trial_id: int) -> Measurement:
        rows = self._read(statement, (trial_id,))
        if not rows or rows[0][0] is None:
            raise StudyError(f"{self.folder}: trial {trial_id} has no measurement")
        try:
            return schema.load(Measurement, json.loads(rows[0][0]), "measurement")
        except (ValueError, SchemaError) as error:
            raise StudyError(f"{self._path}, trial {trial_id}: {error}") from error

    def _end(self, statement: str, values: tuple[Any, ...]) -> None:
        if self._change(statement, values).rowcount != 1:
            raise StudyError(f"{self.folder}: trial {values[-1]} is not running")

    def _change(self, statement: str, values: tuple[Any, ...]) -> sqlite3.Cursor:
        self.lock()
        with writing(self._path):
            return self._connection.execute(statement, values)

    def _read(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StudyError(f"{self._path}: cannot be read ({error})") from error

    def _trial(self, row: Any) -> Trial:
        number, kind, text, *others = row
        try:
            return Trial(number, kind, SpecConfig.parse(text), *others)
        except AutospecError as error:
            raise StudyError(f"{self._path}, trial {number}: {error}") from error
