"""The running study: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from autospec.config import PLAIN, SpecConfig
from autospec.measure.harness import Progress
from autospec.measurement import RequestRecord, Run
from autospec.report.live import TuneView
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
