"""What a report is about, gathered from a profile or a study."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from autospec.config import PLAIN
from autospec.errors import StudyError
from autospec.evidence import StepTime
from autospec.profile import save_profile
from autospec.report.content import gather
from autospec.tune.study import Study
from tests.report.synthetic import write_study
from tests.test_profile import NGRAM, make_profile


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study of 30 trials; the 25th failed."""
    folder = tmp_path_factory.mktemp("synthetic") / "study"
    write_study(folder, 30)
    return folder


def test_outline_is_the_measurement_without_its_records(study: Path) -> None:
    """All figures of a pass are there, and none of its requests."""
    with Study.open(study) as opened:
        whole, outline = opened.measurement(3), opened.outline(3)
        requests = opened.outline(3, requests=True)
        with pytest.raises(StudyError, match="no measurement"):
            opened.outline(25)
    assert outline.records() == ()
    bare = tuple(replace(record, chunk_s=(), chunk_tokens=()) for record in whole.records())
    assert requests.records() == bare
    assert outline == replace(whole, runs=tuple(replace(run, records=()) for run in whole.runs))


def test_study_tells_of_every_trial_once(study: Path) -> None:
    """The profile's rows are whole; the other trials' come from the study."""
    content = gather(study)
    rows = [(point.config, point.part, point.concurrency) for point in content.points]
    assert len(rows) == len(set(rows)) == 29 * 3
    assert content.points[0].config == PLAIN
    ratios = [
        math.prod(p.vs_plain.value for p in content.points if p.config == config and p.vs_plain)
        for config in dict.fromkeys(point.config for point in content.points[3:])
    ]
    assert ratios == sorted(ratios, reverse=True)
    assert [trial.id for trial in content.trials] == list(range(1, 31))
    failed = content.trials[24]
    assert (failed.state, failed.error) == ("failed", "ran out of memory")
    assert failed.log_tail is not None
    assert len(failed.log_tail.splitlines()) == 40
    assert failed.began_s == 24 * 120


def test_unfinished_study_says_so_and_how_to_go_on(tmp_path: Path) -> None:
    """What was measured is shown; nothing is decided."""
    write_study(tmp_path / "my study", 5, finished=False)
    content = gather(tmp_path / "my study")
    assert content.profile is None
    assert content.verdict == "unfinished: 5 trials have ended, nothing is decided yet"
    assert content.commands == (f"autospec tune --resume '{tmp_path}/my study'",)
    best = max(content.trials, key=lambda trial: trial.vs_plain or 0)
    assert content.best == best.config
    assert {row.config for row in content.acceptance} == {best.config}
    assert content.step_times


def test_step_times_of_two_batch_sizes_and_more_get_a_line(tmp_path: Path) -> None:
    """Least squares through the points; one batch size has no slope."""
    rows = [StepTime(NGRAM, load, load, 10 + 2.0 * load, 100) for load in (1, 4, 8)]
    save_profile(
        tmp_path / "p.yaml",
        make_profile(step_times=(*rows, StepTime(PLAIN, 1, 1.0, 10.0, 100))),
    )
    (fit,) = gather(tmp_path / "p.yaml").fits
    assert fit.config == NGRAM
    assert fit.floor_ms == pytest.approx(10)
    assert fit.slope_ms == pytest.approx(2)
    assert fit.worst == pytest.approx(0, abs=1e-9)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    """A folder without a study is no report."""
    with pytest.raises(StudyError, match="not a study"):
        gather(tmp_path)
