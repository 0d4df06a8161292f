"""A watched server on a terminal of 80 by 24, and in a log."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from autospec.control.status import StatusEvent
from autospec.report.watch import WatchScreen, view_line
from autospec.watch.view import DriftView, Event, ServerView, View, Window

TIME = "2026-01-02T03:04:05+00:00"
FULL = View(
    url="http://127.0.0.1:30000",
    time=TIME,
    state="speculating",
    reason="autospec's plugin: at batch size 4 depth 3 makes 2.31 tokens, break-even is 1.62",
    server=ServerView("0.5.23", "models/llama", "EAGLE3 steps=3 topk=1 tokens=4", 48),
    running=4,
    waiting=2,
    throughput=213.4,
    window=Window(2.0, 120, 3.9, 41.25, 2.31, 40.1),
    depth=3,
    break_even=1.62,
    vs_plain=1.426,
    drift=DriftView("misfit", "a step takes 60.00 ms", 19, "autospec tune models/llama"),
    decisions=tuple(StatusEvent(100 - n, 4, 3, f"reason {n} " * 9) for n in range(8)),
    events=tuple(Event(TIME, "fallback", f"event {n} " * 9) for n in range(8)),
    notes=("a note",),
)


def shown(view: View, *, terminal: bool) -> str:
    """What is written."""
    output = io.StringIO()
    with WatchScreen(Console(file=output, force_terminal=terminal, width=80, height=24)) as screen:
        screen.show(view)
    return output.getvalue()


def test_the_picture_has_every_figure() -> None:
    """State, load, acceptance against break-even, drift with its command, decisions, events."""
    text = shown(FULL, terminal=True)
    for said in (
        "speculating at depth 3: autospec's plugin",
        "4 running of 48, 2 waiting",
        "213 tok/s",
        "batch size 3.9, 41.25 ms each, by the profile 40.10",
        "2.31 tokens a step and request, break-even 1.62: 1.43x of plain",
        "misfit: a step takes 60.00 ms (19 blocks judged)",
        "tune again: autospec tune models/llama",
        "a note",
        "03:04:05 fallback: event 0",
        "reason 0",
    ):
        assert said in text
    assert "event 4" not in text
    assert "reason 4" not in text


def test_a_usual_picture_fits_a_terminal() -> None:
    """24 lines of 80 columns, decisions and events included."""
    usual = replace(
        FULL,
        drift=DriftView("fits", "steps and drafts are as the profile says", 19),
        events=tuple(replace(event, text="short") for event in FULL.events),
        notes=(),
    )
    output = io.StringIO()
    console = Console(file=output, force_terminal=False, width=80)
    from autospec.report.watch import _picture

    console.print(_picture(usual))
    lines = output.getvalue().splitlines()
    assert len(lines) <= 23
    assert max(map(len, lines)) <= 80
    table = next(number for number, line in enumerate(lines) if "latest decisions" in line)
    assert lines[table].split()[:3] == ["step", "batch", "depth"]
    assert lines[table + 2].split()[:3] == ["100", "4", "3"]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_server_that_is_gone_is_said_to_be(*, terminal: bool) -> None:
    """With the reason, and what it was."""
    gone = View("http://s", TIME, "gone", "connection refused", server=FULL.server)
    text = shown(gone, terminal=terminal)
    assert "gone" in text or "no answer" in text
    assert "connection refused" in text


def test_elsewhere_a_look_is_one_plain_line() -> None:
    """For a log: no control codes."""
    text = shown(FULL, terminal=False)
    assert "\x1b" not in text
    assert text.splitlines() == [view_line(FULL)]
    assert text.startswith(f"{TIME} speculating 4 running 2 waiting 213 tok/s accept 2.31 ")
    assert text.rstrip().endswith("break-even 1.62 drift misfit")


def test_texts_of_servers_are_no_markup() -> None:
    """Square brackets in a reason stay what they are."""
    view = replace(FULL, reason="depths are [0, 3]", events=(), notes=("[bold]x",))
    text = shown(view, terminal=False) + shown(view, terminal=True)
    assert "depths are [0, 3]" in text
    assert "[bold]x" in text
