"""A study at rest: what is kept, what is refused, and what a kill or a full disk leaves."""

from __future__ import annotations

import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import autospec
from autospec.config import PLAIN, SpecConfig
from autospec.errors import MeasureError, StorageError, StudyError
from autospec.tune.database import take_lock
from autospec.tune.study import Study, Trial
from tests.tune.fakes import CANDIDATES, measured

REQUEST = {"model": "/m", "concurrency": [1, 8], "seed": 0}
RESULT = measured(CANDIDATES[0], {1: [10, 11], 8: [50.5, 51]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a study may begin."""
    return tmp_path / "study"


def new(folder: Path) -> Study:
    """A study whose clock stands still."""
    return Study.create(folder, REQUEST, now=lambda: 1000.0)


def row(number: int, config: SpecConfig, state: str, reason: str) -> Trial:
    """A trial of kind ``tune`` at the time at which the clock of ``new`` stands."""
    return Trial(number, "tune", config, state, reason, 1000.0, 1000.0, *[None] * 4)


def test_trials_are_read_back_as_they_were_written(folder: Path) -> None:
    """Every state, with all that belongs to it, survives closing and opening."""
    with new(folder) as study:
        first = study.start(CANDIDATES[0], "tune", "a reason")
        study.complete(first, RESULT, 0.25, 30.0)
        second = study.start(CANDIDATES[-1], "confirm", "another")
        study.fail(second, "did not start", "log\ntail", 12.5)
        third = study.start(PLAIN, "tune", "the baseline")
        study.put_back(third, 5.0)
        study.start(PLAIN, "tune", "again")
    with Study.open(folder) as study:
        assert study.trials() == (
            replace(row(1, CANDIDATES[0], "complete", "a reason"), seconds=30.0, value=0.25),
            replace(
                row(2, CANDIDATES[-1], "failed", "another"),
                kind="confirm",
                seconds=12.5,
                error="did not start",
                log_tail="log\ntail",
            ),
            replace(row(3, PLAIN, "interrupted", "the baseline"), seconds=5.0),
            replace(row(4, PLAIN, "running", "again"), ended=None),
        )
        assert [trial.id for trial in study.trials("confirm")] == [2]
        assert [trial.has_ended for trial in study.trials()] == [True, True, False, False]
        assert study.measurement(1) == RESULT
        assert study.seconds_used() == 47.5


def test_a_trial_that_was_stopped_early_is_pruned_with_its_figures(folder: Path) -> None:
    """Why it was stopped stands where a failure would; it is neither complete nor asked again."""
    with new(folder) as study:
        number = study.start(CANDIDATES[0], "tune", "a reason")
        stopped = replace(RESULT, stopped="far behind")
        study.complete(number, stopped, -0.5, 12.0)
    with Study.open(folder) as study:
        trial = study.trial(number)
        assert (trial.state, trial.error, trial.value) == ("pruned", "far behind", -0.5)
        assert trial.has_ended
        assert study.measurement(number) == stopped
        assert study.recover() == ()


def test_the_request_is_kept(folder: Path) -> None:
    """A resumed study knows what it was begun for."""
    with new(folder) as study:
        assert study.request == REQUEST
    with Study.open(folder) as study:
        assert study.request == REQUEST
        assert study.created == 1000.0


def test_an_ended_trial_is_never_changed(folder: Path) -> None:
    """Neither the study nor a stray statement rewrites or removes a result."""
    with new(folder) as study:
        number = study.start(CANDIDATES[0], "tune", "")
        study.complete(number, RESULT, 0.25, 30.0)
        before = study.trials()
        with pytest.raises(StudyError, match="trial 1 is not running"):
            study.complete(number, RESULT, 0.5, 1.0)
        with pytest.raises(StudyError, match="trial 1 is not running"):
            study.fail(number, "no", "", 1.0)
        with pytest.raises(StudyError, match="trial 1 is not running"):
            study.put_back(number, 1.0)
        for statement in ("UPDATE trials SET value = 9", "DELETE FROM trials"):
            with pytest.raises(sqlite3.IntegrityError, match="never"):
                study._connection.execute(statement)
        assert study.recover() == ()
        assert study.trials() == before


def test_numbers_that_are_not_finite_are_refused_and_change_nothing(folder: Path) -> None:
    """NaN reaches neither the table nor the JSON."""
    with new(folder) as study:
        number = study.start(CANDIDATES[0], "tune", "")
        with pytest.raises(MeasureError, match="value is nan"):
            study.complete(number, RESULT, math.nan, 1.0)
        with pytest.raises(MeasureError, match="not finite"):
            study.complete(number, measured(CANDIDATES[0], {1: [math.inf]}), 0.1, 1.0)
        assert study.trial(number).state == "running"


def test_what_does_not_exist_is_refused_by_number(folder: Path) -> None:
    """No trial, and a trial without a measurement, are errors that name it."""
    with new(folder) as study:
        number = study.start(CANDIDATES[0], "tune", "")
        with pytest.raises(StudyError, match="trial 1 has no measurement"):
            study.measurement(number)
        with pytest.raises(StudyError, match="no trial 7"):
            study.trial(7)
        with pytest.raises(StudyError, match="trial 7 is not running"):
            study.fail(7, "", "", 0.0)


def test_recovering_gives_what_was_not_finished(folder: Path) -> None:
    """Interrupted and killed trials are to be measured again, unless they have been since."""
    with new(folder) as study:
        study.put_back(study.start(CANDIDATES[0], "tune", ""), 1.0)
        study.put_back(study.start(CANDIDATES[1], "tune", ""), 1.0)
        study.complete(study.start(CANDIDATES[0], "tune", ""), RESULT, 0.1, 1.0)
        study.fail(study.start(CANDIDATES[2], "tune", ""), "crash", "", 1.0)
        study.start(CANDIDATES[3], "confirm", "")
    with Study.open(folder) as study:
        waiting = study.recover()
        assert [(trial.kind, trial.config) for trial in waiting] == [
            ("tune", CANDIDATES[1]),
            ("confirm", CANDIDATES[3]),
        ]
        assert {trial.state for trial in waiting} == {"interrupted"}
        assert study.recover() == waiting


def test_a_study_has_one_writer_and_many_readers(folder: Path) -> None:
    """A second session is refused before it changes anything; reading goes on."""
    with new(folder) as study, Study.open(folder) as other:
        study.start(CANDIDATES[0], "tune", "")
        with pytest.raises(StudyError, match="another autospec is running this study"):
            other.lock()
        with pytest.raises(StudyError, match="another autospec is running this study"):
            other.recover()
        with pytest.raises(StudyError, match="another autospec is running this study"):
            other.start(PLAIN, "tune", "")
        assert other.trials() == study.trials()
        study.close()
        other.lock()
        assert [trial.config for trial in other.recover()] == [CANDIDATES[0]]


def test_a_study_begins_in_an_empty_folder(folder: Path) -> None:
    """A folder that exists but holds nothing will do; so will one whose creator was killed."""
    folder.mkdir()
    (folder / "study.lock").touch()
    (folder / ".study.sqlite.new").write_text("half")
    (folder / ".study.sqlite.new-wal").write_text("half")
    new(folder).close()
    assert {path.name for path in folder.iterdir()} == {"study.lock", "study.sqlite"}


def test_a_folder_in_use_is_refused(tmp_path: Path, folder: Path) -> None:
    """Neither a study, nor foreign files, nor a file, nor a study being made is overwritten."""
    new(folder).close()
    with pytest.raises(StudyError, match="already holds a study"):
        new(folder)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StudyError, match=r"holds 'notes.txt'"):
        new(tmp_path)
    with pytest.raises(StudyError, match="is a file"):
        new(tmp_path / "notes.txt")
    lock = take_lock(tmp_path / "begun")
    with pytest.raises(StudyError, match="another autospec"):
        new(tmp_path / "begun")
    os.close(lock)


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    """A path through a file cannot be written, and the message says so."""
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="cannot be written"):
        new(tmp_path / "file" / "study")


def test_a_creation_that_fails_leaves_the_folder_free(folder: Path) -> None:
    """Neither the lock nor a half-made study is left behind."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        Study.create(folder, {"seed": math.nan})
    obstacle = folder / ".study.sqlite.new-wal"
    obstacle.mkdir()
    with pytest.raises(StorageError, match="cannot be written"):
        new(folder)
    obstacle.rmdir()
    new(folder).close()


def damage(*statements: str) -> Callable[[Path], None]:
    """Change the database behind the study's back."""

    def change(path: Path) -> None:
        connection = sqlite3.connect(path)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()

    return change


def overwrite_middle(path: Path) -> None:
    """Garbage in the middle of the file, its header whole."""
    data = bytearray(path.read_bytes())
    data[5000:9000] = b"\xff" * 4000
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.unlink(), "not a study folder, it has no study.sqlite"),
        (lambda path: path.write_text("prompt,answer\n" * 100), "not a study, or damaged"),
        (lambda path: path.write_bytes(b""), "belongs to another program"),
        (lambda path: path.write_bytes(path.read_bytes()[:6000]), "damaged"),
        (overwrite_middle, "damaged"),
        (
            damage(
                "DROP TABLE trials",
                "CREATE TABLE trials (kind TEXT CHECK (kind IN ('tune', 'confirm')))",
            ),
            "begun by an older autospec; begin a new study",
        ),
        (damage("DROP TABLE meta"), "belongs to another program"),
        (
            damage("UPDATE meta SET value = 'optuna' WHERE name = 'kind'"),
            "belongs to another program, its kind is 'optuna'",
        ),
        (
            damage("UPDATE meta SET value = '2' WHERE name = 'schema'"),
            "schema 2 is newer than 1, the newest this autospec reads",
        ),
        (
            damage("UPDATE meta SET value = 'x' WHERE name = 'schema'"),
            "schema is 'x', must be 1",
        ),
        (damage("UPDATE meta SET value = '{' WHERE name = 'request'"), "request cannot be read"),
        (
            damage(
                "PRAGMA ignore_check_constraints = ON",
                "INSERT INTO trials (kind, config, state, reason, started)"
                " VALUES ('tune', 'PLAIN', 'complete', '', 1)",
            ),
            "damaged (CHECK constraint failed in trials)",
        ),
        (damage("DELETE FROM meta WHERE name = 'created'"), "request cannot be read"),
    ],
)
def test_what_is_no_readable_study_is_refused(
    folder: Path, spoil: Callable[[Path], None], message: str
) -> None:
    """One line that names the file and what is wrong with it; nothing is changed."""
    new(folder).close()
    spoil(folder / "study.sqlite")
    before = {path.name: path.read_bytes() for path in folder.glob("study.sqlite")}
    with pytest.raises(StudyError) as caught:
        Study.open(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in folder.glob("study.sqlite")} == before


def test_a_row_that_cannot_be_read_is_refused_by_number(folder: Path) -> None:
    """A configuration or measurement of another version is an error that names the trial."""
    new(folder).close()
    row = "INSERT INTO trials (kind, config, state, reason, started, ended, seconds, measurement)"
    damage(f"{row} VALUES ('tune', 'PLAIN', 'complete', '', 1, 2, 1, '{{}}')")(
        folder / "study.sqlite"
    )
    with Study.open(folder) as study:
        with pytest.raises(StudyError, match=r"trial 1: measurement: key 'config' is missing"):
            study.measurement(1)
        damage(f"{row} VALUES ('tune', 'MAGIC wand=1', 'complete', '', 1, 2, 1, '')")(
            folder / "study.sqlite"
        )
        with pytest.raises(StudyError, match=r"trial 2: .*wand=1"):
            study.trials()
        damage("DROP TABLE trials")(folder / "study.sqlite")
        with pytest.raises(StudyError, match=r"cannot be read .*no such table"):
            study.trials()


def test_a_full_disk_is_one_line_and_loses_nothing(folder: Path) -> None:
    """What was there is still there; the trial goes on running until there is room."""
    with new(folder) as study:
        study.complete(study.start(CANDIDATES[0], "tune", ""), RESULT, 0.25, 30.0)
        number = study.start(CANDIDATES[1], "tune", "")
        pages = study._connection.execute("PRAGMA page_count").fetchone()[0]
        study._connection.execute(f"PRAGMA max_page_count = {pages}")
        large = measured(CANDIDATES[1], {1: [1.0] * 1000})
        with pytest.raises(StorageError, match=r"study.sqlite: cannot be written .*full") as caught:
            study.complete(number, large, 0.1, 1.0)
        assert "\n" not in str(caught.value)
        assert [trial.state for trial in study.trials()] == ["complete", "running"]
        study._connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
        study.complete(number, large, 0.1, 1.0)
    with Study.open(folder) as study:
        assert study.measurement(number) == large


def killed(arguments: list[str], delay_s: float) -> list[str]:
    """Start Python, wait for its first line, SIGKILL it after a delay: the whole lines it wrote."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=Path(autospec.__file__).parents[1],
        stdout=subprocess.PIPE,
        text=True,
    )
    # A child that never says anything is killed as well, and fails the test by its empty answer.
    limit = threading.Timer(60, process.kill)
    limit.start()
    assert process.stdout is not None
    with process.stdout as stdout:
        lines = [stdout.readline()]
        time.sleep(delay_s)
        process.kill()
        lines += stdout.readlines()
    assert process.wait(timeout=30) == -signal.SIGKILL
    limit.cancel()
    return [line for line in lines if line.endswith("\n")]


def test_a_killed_process_loses_no_trial_it_had_reported(folder: Path) -> None:
    """After each of many SIGKILLs at random moments the study opens whole, with every result."""
    chance = random.Random(0)  # noqa: S311  no secret
    ended: dict[int, Trial] = {}
    for _ in range(8):
        lines = killed(["-m", "tests.tune.write_trials", str(folder)], chance.uniform(0, 0.1))
        reported = [int(line) for line in lines]
        assert reported
        with Study.open(folder) as study:
            study.lock()
            trials = {trial.id: trial for trial in study.trials()}
            assert list(trials) == list(range(1, len(trials) + 1))
            assert all(trials[number] == trial for number, trial in ended.items())
            assert all(trials[number].state != "running" for number in reported)
            assert sum(trial.state == "running" for trial in trials.values()) <= 1
            study.recover()
            ended = {trial.id: trial for trial in study.trials()}
            for number in reported:
                if trials[number].state == "complete":
                    assert study.measurement(number).throughputs(1)[0] == number


def test_a_process_killed_while_it_begins_leaves_a_study_or_none(tmp_path: Path) -> None:
    """A creation cut short can be repeated in the same folder."""
    code = (
        "import sys, pathlib; from autospec.tune.study import Study; print(flush=True);"
        "[Study.create(pathlib.Path(sys.argv[1]) / str(n), {}).close() for n in range(10**6)]"
    )
    chance = random.Random(1)  # noqa: S311  no secret
    for attempt in range(4):
        folder = tmp_path / str(attempt)
        assert killed(["-c", code, str(folder)], chance.uniform(0.02, 0.15))
        for begun in folder.iterdir():
            exists = (begun / "study.sqlite").exists()
            with Study.open(begun) if exists else new(begun) as study:
                assert study.trials() == ()
