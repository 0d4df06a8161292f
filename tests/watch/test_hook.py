"""A command on an event: it gets the event, and whatever it does, watching goes on."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import psutil
import pytest

from autospec.errors import InputError
from autospec.watch.hook import Hook, split_command
from autospec.watch.view import Event, EventKind

FALLBACK = Event("2026-01-01T00:00:00+00:00", "fallback", "fell back: 0.8x")


def python(code: str) -> list[str]:
    """A program."""
    return [sys.executable, "-c", code]


def outcome(words: list[str], *events: Event, timeout_s: float = 20.0) -> list[str]:
    """What a command was told to have come to, for each event."""
    told: list[str] = []

    async def run() -> None:
        async with Hook(words, "http://s", told.append, timeout_s=timeout_s) as hook:
            for event in events:
                hook.submit(event)
            await hook.drain()

    asyncio.run(run())
    return told


def test_the_event_comes_on_standard_input_and_in_the_environment(tmp_path: Path) -> None:
    """As one JSON object; text with quotes and a dollar reaches no shell."""
    out = tmp_path / "out.json"
    code = (
        "import json, os, sys; event = json.load(sys.stdin); "
        "event['env'] = [os.environ['AUTOSPEC_EVENT'], os.environ['AUTOSPEC_URL']]; "
        f"open({str(out)!r}, 'w').write(json.dumps(event))"
    )
    event = Event(FALLBACK.time, "drift", "'; $(touch x) \"", "autospec tune m")
    assert outcome(python(code), event) == ["on drift: done"]
    document = json.loads(out.read_text())
    assert document == {
        "url": "http://s",
        "time": FALLBACK.time,
        "kind": "drift",
        "text": "'; $(touch x) \"",
        "command": "autospec tune m",
        "env": ["drift", "http://s"],
    }


@pytest.mark.parametrize("kind", ["found", "gone", "restarted", "return", "command"])
def test_only_fallbacks_and_drift_run_it(kind: EventKind) -> None:
    """Other events are shown and no more."""
    assert outcome(python(""), Event("t", kind, "x")) == []


def test_a_failing_command_is_said_to_have_failed() -> None:
    """And the next event runs it again."""
    assert (
        outcome(python("raise SystemExit(3)"), FALLBACK, FALLBACK)
        == ["on fallback: exit code 3"] * 2
    )


def test_a_command_that_reads_nothing_and_one_that_is_no_program(tmp_path: Path) -> None:
    """Neither a closed pipe nor a file that cannot run is an error of watching."""
    assert outcome(python("import sys; sys.stdin.close()"), FALLBACK) == ["on fallback: done"]
    text = tmp_path / "text"
    text.write_text("no program")
    (told,) = outcome([str(text)], FALLBACK)
    assert told.startswith("on fallback: could not be started (")


def test_a_hanging_command_is_ended_with_all_it_started(tmp_path: Path) -> None:
    """After its time; its children too."""
    mark = f"time.sleep(600) # {tmp_path}"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', {f'import time; {mark}'!r}])\n{mark}"
    )
    assert outcome(python(code), FALLBACK, timeout_s=1.0) == ["on fallback: ended after 1 s"]
    deadline = time.monotonic() + 10
    while _alive(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _alive(mark) == []


def test_leaving_ends_a_command_at_work_at_once(tmp_path: Path) -> None:
    """Ctrl-C does not wait for it."""
    mark = f"time.sleep(600) # {tmp_path}"

    async def run() -> None:
        async with Hook(python(f"import time; {mark}"), "http://s", lambda _: None) as hook:
            hook.submit(FALLBACK)
            while not _alive(mark):  # noqa: ASYNC110  # there is nothing to be told by
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 20))
    assert _alive(mark) == []


def test_events_that_wait_are_bounded() -> None:
    """A flood is told of and not kept."""
    told: list[str] = []

    async def run() -> None:
        async with Hook(python(""), "http://s", told.append) as hook:
            for _ in range(40):
                hook.submit(FALLBACK)

    asyncio.run(run())
    assert told == ["not run on fallback: 16 events wait already"] * 24


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("echo 'half", "cannot be read"),
        ("   ", "is empty"),
        ("no-such-program-here --now", "there is no program 'no-such-program-here'"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_watched(text: str, says: str) -> None:
    """Found out at once, not at the first fallback at night."""
    with pytest.raises(InputError, match=says):
        split_command(text)


def test_a_command_is_split_as_a_shell_would_and_no_more() -> None:
    """Quotes group; pipes, variables and semicolons are words."""
    assert split_command("echo 'a b' $HOME; c | d") == ["echo", "a b", "$HOME;", "c", "|", "d"]


def _alive(mark: str) -> list[psutil.Process]:
    """Processes with a mark in their command, wherever they hang in the tree."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if mark in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found
