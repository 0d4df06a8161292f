"""The file of a study: made whole or not at all, locked by one, checked when it is opened."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autospec.errors import StorageError, StudyError
from autospec.schema import SCHEMA

__all__ = [
    "DATABASE",
    "KIND",
    "LOCK",
    "Meta",
    "canonical",
    "check_empty",
    "connect",
    "take_lock",
    "write_new",
    "writing",
]

#: What ``meta.kind`` says in a study of this program.
KIND: Final = "autospec-study"
DATABASE: Final = "study.sqlite"
LOCK: Final = "study.lock"
_UNFINISHED: Final = ".study.sqlite.new"

_TABLES: Final = """
PRAGMA journal_mode = WAL;
BEGIN;
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE trials (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('tune', 'noise', 'confirm', 'check')),
    config TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('running', 'complete', 'failed', 'pruned', 'interrupted')),
    reason TEXT NOT NULL,
    started REAL NOT NULL,
    ended REAL,
    seconds REAL,
    value REAL,
    measurement TEXT,
    error TEXT,
    log_tail TEXT,
    CHECK (state != 'complete' OR measurement IS NOT NULL),
    CHECK (state != 'failed' OR error IS NOT NULL),
    CHECK ((state = 'running') = (ended IS NULL)),
    CHECK ((state = 'running') = (seconds IS NULL))
);
CREATE TRIGGER ended_trials_stay BEFORE UPDATE ON trials WHEN OLD.state != 'running'
BEGIN SELECT RAISE(ABORT, 'a trial that has ended is never changed'); END;
CREATE TRIGGER trials_stay BEFORE DELETE ON trials
BEGIN SELECT RAISE(ABORT, 'a trial is never deleted'); END;
COMMIT;
"""


@dataclass(frozen=True, slots=True)
class Meta:
    """What a study says of itself.

    Attributes:
        created: Unix time in seconds.
        request: what was asked for, as JSON holds it.
    """

    created: float
    request: dict[str, Any]


def canonical(request: dict[str, Any]) -> str:
    """JSON text that is the same for equal requests."""
    return json.dumps(request, sort_keys=True, allow_nan=False)


def check_empty(folder: Path) -> None:
    """Refuse a folder in which no study can begin.

    Raises:
        StudyError: it is a file, or holds a study or anything foreign.
    """
    if not folder.exists():
        return
    if not folder.is_dir():
        raise StudyError(f"{folder}: is a file, must be a new or empty folder")
    names = {path.name for path in folder.iterdir()}
    if DATABASE in names:
        raise StudyError(f"{folder}: already holds a study; resume it, or name another folder")
    # A session killed while it created the study leaves these.
    foreign = {name for name in names if name != LOCK and not name.startswith(_UNFINISHED)}
    if foreign:
        raise StudyError(f"{folder}: holds {min(foreign)!r}, must be a new or empty folder")


def take_lock(folder: Path) -> int:
    """Lock a folder until the descriptor is closed or the process dies.

    Raises:
        StudyError: another process has the lock.
        StorageError: the folder cannot be written.
    """
    path = folder / LOCK
    lock: int | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if lock is not None:
            os.close(lock)
        if isinstance(error, BlockingIOError):
            raise StudyError(f"{folder}: another autospec is running this study") from error
        raise StorageError(f"{path}: cannot be written ({error.strerror})") from error
    return lock


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what SQLite says while writing, such as a full disk, into one line.

    Raises:
        StorageError: naming the file and what went wrong.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{path}: cannot be written ({error})") from error


def write_new(folder: Path, request: dict[str, Any], created: float) -> None:
    """Write a study without trials under another name, then rename it.

    Raises:
        StorageError: it could not be written.
    """
    unfinished = folder / _UNFINISHED
    meta = {
        "kind": KIND,
        "schema": str(SCHEMA),
        "created": repr(created),
        "request": canonical(request),
    }
    try:
        for path in folder.glob(f"{_UNFINISHED}*"):
            path.unlink()
        with writing(unfinished), contextlib.closing(sqlite3.connect(unfinished)) as connection:
            connection.executescript(_TABLES)
            connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
            connection.commit()
        unfinished.replace(folder / DATABASE)
    except OSError as error:
        raise StorageError(f"{unfinished}: cannot be written ({error.strerror})") from error


def connect(folder: Path) -> tuple[sqlite3.Connection, Meta]:
    """Open the database of a study, after checking that it is one and whole.

    Raises:
        StudyError: no study is there, or one that this autospec cannot read.
    """
    path = folder / DATABASE
    if not path.is_file():
        raise StudyError(f"{folder}: not a study folder, it has no {DATABASE}")
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw", uri=True, isolation_level=None, timeout=30
        )
        return connection, _check(path, connection)
    except BaseException as error:
        if connection is not None:
            connection.close()
        if isinstance(error, sqlite3.Error):
            raise StudyError(f"{path}: not a study, or damaged ({error})") from error
        raise


def _check(path: Path, connection: sqlite3.Connection) -> Meta:
    connection.execute("PRAGMA synchronous = FULL")
    tables = dict(
        connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
    )
    if not {"meta", "trials"} <= tables.keys():
        raise StudyError(f"{path}: belongs to another program, it has no table of trials")
    values = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    if values.get("kind") != KIND:
        raise StudyError(f"{path}: belongs to another program, its kind is {values.get('kind')!r}")
    version = str(values.get("schema"))
    if version.isdigit() and int(version) > SCHEMA:
        raise StudyError(
            f"{path}: schema {version} is newer than {SCHEMA}, the newest this autospec reads"
        )
    if version != str(SCHEMA):
        raise StudyError(f"{path}: schema is {version!r}, must be {SCHEMA}")
    if "'noise'" not in tables["trials"]:
        raise StudyError(f"{path}: begun by an older autospec; begin a new study")
    verdict = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if verdict != "ok":
        raise StudyError(f"{path}: damaged ({str(verdict).splitlines()[-1]})")
    try:
        request = json.loads(values["request"])
        return Meta(float(values["created"]), request)
    except (KeyError, ValueError) as error:
        raise StudyError(f"{path}: damaged, its request cannot be read ({error})") from error
