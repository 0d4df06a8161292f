"""The plugin's status file: written whole, read strictly, found by port."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autospec.control.status import (
    PluginStatus,
    StatusEvent,
    read_status,
    status_path,
    write_status,
)
from autospec.errors import SchemaError

STATUS = PluginStatus(
    active=True,
    reason="switches NGRAM on and off",
    pid=7,
    updated_s=1.5,
    profile="/p.yaml",
    kind="throughput",
    algorithm="NGRAM",
    switching="on-off",
    depths=(0, 7),
    depth=0,
    steps=12,
    counters={"plain_steps": 5},
    depth_by_batch={1: 7, 8: 0},
    decisions=(StatusEvent(3, 8, 0, "does not pay"), StatusEvent(9, 8, 7, "looks", "probe")),
    step_time_ms={0: {1: 10.5}, 7: {1: 20.25}},
)


def test_status_reads_back_as_written(tmp_path: Path) -> None:
    """Keys that are numbers come back as numbers, and the file is its owner's alone."""
    path = tmp_path / "status" / "1.json"
    write_status(path, STATUS)
    assert read_status(path) == STATUS
    assert path.stat().st_mode & 0o077 == 0


def test_status_stands_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One file a port, below the folder that AUTOSPEC_CACHE names."""
    monkeypatch.setenv("AUTOSPEC_CACHE", str(tmp_path))
    assert status_path(30000) == tmp_path / "status" / "30000.json"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("{", "not JSON"),
        ("[]", "must be a mapping"),
        ('{"schema": 99}', "newer"),
        ('{"schema": 1, "active": true}', "'reason' is missing"),
    ],
)
def test_what_is_no_status_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    """In one line that names the file."""
    path = tmp_path / "s.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(SchemaError, match=says) as error:
        read_status(path)
    assert "s.json" in str(error.value)


def test_status_of_a_later_minor_version_names_what_it_does_not_know(tmp_path: Path) -> None:
    """Unknown keys are errors here as everywhere."""
    path = tmp_path / "s.json"
    write_status(path, STATUS)
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "mood": "fine"}))
    with pytest.raises(SchemaError, match="mood"):
        read_status(path)
