"""Step times of a server in use, written into a new profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from autospec.cli import cli
from autospec.config import PLAIN, SpecConfig
from autospec.control.status import PluginStatus, status_path, write_status
from autospec.errors import ConfigError, MismatchError, SchemaError
from autospec.evidence import StepTime
from autospec.profile import Profile, load_profile, save_profile
from autospec.tuning.refresh import refresh, status_of_server
from tests.test_profile import NGRAM, make_profile

OTHER = SpecConfig("NGRAM", num_draft_tokens=8, options=(("ngram_max_bfs_breadth", 1),))
ROWS = (
    StepTime(PLAIN, 1, 1.0, 10.0, 99),
    StepTime(PLAIN, 8, 7.5, 20.0, 99),
    StepTime(NGRAM, 1, 1.0, 14.0, 99),
    StepTime(NGRAM, 8, 7.5, 40.0, 99),
    StepTime(OTHER, 1, 1.0, 13.0, 99),
)


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    """A profile with step times, in a folder with a cache of its own."""
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path / "cache"))
    save_profile(tmp_path / "p.yaml", make_profile(step_times=ROWS))
    return load_profile(tmp_path / "p.yaml")


def status(folder: Path, times: dict[int, dict[int, float]]) -> PluginStatus:
    """The word of a plugin that works with this profile."""
    return PluginStatus(True, "fine", 1, 1.8e9, profile=str(folder / "p.yaml"), step_time_ms=times)


def test_rows_take_the_correction_of_the_nearest_batch_size(
    profile: Profile, tmp_path: Path
) -> None:
    """Those of what the policy switches between, and a warning says what is new."""
    word = status(tmp_path, {0: {1: 10.0, 8: 20.0}, 7: {1: 28.0, 8: 40.0}})
    refreshed = refresh(profile, word, "p.yaml")
    assert [row.step_time_ms for row in refreshed.profile.step_times] == [10, 20, 28, 40, 13]
    assert len(refreshed.changes) == 1
    assert "14.00 ms is now 28.00 ms (+100.0%)" in refreshed.changes[0]
    assert "2027-01-15" in refreshed.profile.warnings[-1]
    assert refreshed.profile.verdict == profile.verdict


def test_batch_sizes_far_from_any_seen_stay_as_they_were(profile: Profile, tmp_path: Path) -> None:
    """Nothing is known of them."""
    refreshed = refresh(profile, status(tmp_path, {0: {32: 99.0}, 7: {}}), "p.yaml")
    assert refreshed.profile == profile
    assert refreshed.changes == ()


def test_command_writes_the_profile_and_says_what_changed(profile: Profile, tmp_path: Path) -> None:
    """The old file is left alone."""
    write_status(status_path(31000), status(tmp_path, {0: {1: 12.0}, 7: {1: 14.0}}))
    old = (tmp_path / "p.yaml").read_text()
    arguments = ["refresh", str(tmp_path / "p.yaml"), "--url", "http://127.0.0.1:31000"]
    result = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "new.yaml")])
    assert result.exit_code == 0, result.output
    assert "PLAIN at batch size 1: 10.00 ms is now 12.00 ms (+20.0%)" in result.output
    assert load_profile(tmp_path / "new.yaml").step_times[0].step_time_ms == 12.0
    assert (tmp_path / "p.yaml").read_text() == old


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        ("http://10.0.0.1:31000", ConfigError, "must be http://127.0.0.1:PORT"),
        ("http://127.0.0.1", ConfigError, "must be http://127.0.0.1:PORT"),
        ("http://127.0.0.1:99999", ConfigError, "cannot be read"),
        ("http://127.0.0.1:31001", SchemaError, "31001.json: cannot be read"),
    ],
)
@pytest.mark.usefixtures("profile")
def test_server_that_cannot_be_asked_is_refused(
    tmp_path: Path, url: str, error: type[Exception], says: str
) -> None:
    """In one line that says what would be right."""
    with pytest.raises(error, match=says):
        status_of_server(url, tmp_path / "p.yaml")


@pytest.mark.usefixtures("profile")
def test_word_about_another_profile_is_not_taken(tmp_path: Path) -> None:
    """Nor one without times."""
    word = status(tmp_path, {0: {1: 10.0}})
    write_status(status_path(31000), replace(word, profile="/other.yaml"))
    with pytest.raises(MismatchError, match=r"/other\.yaml"):
        status_of_server("http://localhost:31000", tmp_path / "p.yaml")
    write_status(status_path(31000), replace(word, step_time_ms={}))
    with pytest.raises(MismatchError, match="timed nothing"):
        status_of_server("http://localhost:31000", tmp_path / "p.yaml")
