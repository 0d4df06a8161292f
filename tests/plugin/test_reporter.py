"""What the outside is told."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest

from autospec.control.controller import Controller
from autospec.control.costs import Costs
from autospec.control.policy import Setting
from autospec.control.status import PluginStatus, read_status
from autospec.plugin.asked import Asked
from autospec.plugin.plan import EngineFacts, Plan
from autospec.plugin.reporter import Reporter
from autospec.plugin.steering import EVENTS, Steering
from tests.plugin.forced import Forced

ENGINE = EngineFacts("STANDALONE", 3)
COSTS = Costs({0: {1.0: 10.0}, 3: {1.0: 16.0}})


def made(path: Path, shown: list[PluginStatus]) -> tuple[Reporter, Steering]:
    """A reporter of a steering at work."""

    class Shown:
        """Metrics that only remember."""

        def show(self, status: PluginStatus) -> None:
            shown.append(status)

    setting = Setting((0, 3), COSTS)
    controller = Controller(setting, Forced(setting, Forced.Parameters(2)))
    plan = Plan(controller, "depth", (0, 3), "steers", "mine.yaml", "forced", COSTS)
    steered = Steering(plan, 3)
    asked = Asked(Path("/p.yaml"))
    return Reporter(steered, asked, ENGINE, path=path, metrics=Shown()), steered


def test_status_says_what_is_going_on(tmp_path: Path) -> None:
    """Identity, state, counters, the latest decisions and the step times in use."""
    shown: list[PluginStatus] = []
    reporter, steered = made(tmp_path / "s.json", shown)
    for _ in range(500):
        steered.choose(2)
    reporter.report()
    status = read_status(tmp_path / "s.json")
    assert (status.active, status.reason, status.pid) == (True, "steers", os.getpid())
    assert abs(status.updated_s - time.time()) < 60
    assert (status.profile, status.policy, status.kind) == ("/p.yaml", "mine.yaml", "forced")
    assert (status.algorithm, status.switching, status.depths) == ("STANDALONE", "depth", (0, 3))
    assert status.steps == 500
    assert status.depth_by_batch == {2: status.depth}
    assert 1 < len(status.decisions) <= EVENTS
    assert status.step_time_ms == {0: {2: 10.0}, 3: {2: 16.0}}
    assert shown == [status]


def test_folder_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And stops nothing."""
    (tmp_path / "file").write_text("")
    reporter, _ = made(tmp_path / "file" / "s.json", [])
    with caplog.at_level(logging.WARNING):
        reporter.report()
        reporter.report()
    assert len(caplog.records) == 1


def test_reporter_goes_on_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread brings the file up to date while the server works."""
    monkeypatch.setattr("autospec.plugin.reporter._PERIOD_S", 0.01)
    reporter, steered = made(tmp_path / "s.json", [])
    reporter.start()
    steered.choose(1)
    until = time.monotonic() + 20
    while read_status(tmp_path / "s.json").steps == 0:
        assert time.monotonic() < until
        time.sleep(0.01)
