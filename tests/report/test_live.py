"""The running study: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from autospec.config import PLAIN, SpecConfig
from autospec.measure.harness import Progress
from autospec.measurement import RequestRecord, Run
from autospec.report.live import TuneView
from autospec.tune.budget import Cost, Plan
from autospec.tune.study import Trial

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)


def show_two_trials(view: TuneView) -> None:
    """Plain decoding, and a candidate that fails after one pass."""
    record = RequestRecord(0, 0.0, 1.0, verify_ct=10, num_correct_drafts=5)
    run = Run("tune", 1, 0, 12.34, (0.0, 1.0), 1.0, (record,), warnings=("a warning",))
    with view:
        for number, (config, state, value) in enumerate(
            [(PLAIN, "complete", 0.0), (NGRAM, "failed", None)], start=1
        ):
            view.trial_started(number, config, "the reason")
            view.phase("launching")
            view.pass_done(Progress(run, done=1, total=3))
            error = "it died" if state == "failed" else None
            view.trial_finished(
                Trial(number, "tune", config, state, "", 0.0, 1.0, 1.0, value, error, None)
            )


def test_time_gone_and_left_is_said_before_each_trial() -> None:
    """At the pace so far: half the work in 100 s leaves 100 s; earlier nothing is guessed."""
    output, clock = io.StringIO(), iter([0.0, 0.0, 0.0, 100.0, 300.0])
    view = TuneView(Console(file=output, force_terminal=False, width=200), now=lambda: next(clock))
    cost = Cost(launch_s=5.0, passes_s=15.0)
    with view:
        view.planned(Plan(8, 1, 1, cost, "candidates"), prepared())
        view.trial_started(1, PLAIN, "first")
        view.trial_finished(Trial(1, "tune", PLAIN, "complete", "", 0, 1, 1, 0.0, None, None))
        view.trial_started(2, NGRAM, "second")
        view.trial_finished(Trial(2, "tune", NGRAM, "complete", "", 0, 1, 1, 0.0, None, None))
        view.trial_started(3, NGRAM, "one more than planned")
    lines = [line for line in output.getvalue().splitlines() if line.startswith("[")]
    assert lines[0].endswith("first")
    assert lines[1].endswith("second; 1m40s gone, about 1m40s left")
    assert lines[2].endswith("planned; 5m gone")


def prepared() -> Any:
    """As much of a prepared study as the view shows."""
    part = SimpleNamespace(prompts=(1, 2), name="tune")
    return SimpleNamespace(
        environment=SimpleNamespace(accelerator_count=1, accelerator="CPU", device="cpu"),
        parts=SimpleNamespace(warmup=part, tune=part, confirm=part),
        request=SimpleNamespace(model="m", concurrencies=(1,)),
        refused=(),
    )


@pytest.mark.parametrize("terminal", [True, False])
def test_what_happens_is_said_either_way(*, terminal: bool) -> None:
    """Reason, failure and warnings are lines of their own on a terminal and elsewhere."""
    output = io.StringIO()
    show_two_trials(TuneView(Console(file=output, force_terminal=terminal, width=80)))
    text = output.getvalue()
    for said in ("[1] PLAIN: the reason", "failed: it died", "warning: a warning"):
        assert said in text


def test_elsewhere_there_are_no_control_codes() -> None:
    """A log file holds plain lines, one a pass with its figures."""
    output = io.StringIO()
    show_two_trials(TuneView(Console(file=output, force_terminal=False, width=80)))
    assert "\x1b" not in output.getvalue()
    assert "pass 1/3 at concurrency 1: 12.3 tok/s, accept length 1.50" in output.getvalue()
