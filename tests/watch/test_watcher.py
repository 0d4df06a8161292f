"""From readings to state, figures, events and drift."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import schema
from autospec.config import PLAIN
from autospec.control.status import PluginStatus, StatusEvent
from autospec.watch.view import View
from autospec.watch.watcher import Watcher
from tests.watch.made import NOW, SERVER, Course, known, plugin


def kinds(watcher: Watcher) -> list[str]:
    """Kinds of the latest reading's events."""
    return [event.kind for event in watcher.new]


def test_figures_are_those_between_two_looks() -> None:
    """Batch, step time, accept length, and by the profile break-even and gain."""
    course, watcher = Course(), Watcher("http://s", known())
    first = watcher.see(course.look(50, accept=1.0), NOW)
    assert first.window is None
    view = watcher.see(course.look(100, ms=21.0), NOW)
    window = view.window
    assert window is not None
    assert (window.num_steps, window.batch_size, window.seconds) == (100, 4.0, 10.0)
    assert window.step_time_ms == pytest.approx(21.0)
    assert window.accept_length == pytest.approx(2.5)
    assert window.profile_step_time_ms == pytest.approx(15 * 1.4)
    assert view.break_even == pytest.approx(1.5)
    assert view.vs_plain == pytest.approx(2.5 / 1.5)
    assert (view.state, view.depth) == ("speculating", 3)
    assert (view.running, view.throughput) == (4, 123.0)


def test_a_plain_server_is_plain_whatever_it_does() -> None:
    """Known from its settings, before any step."""
    course = Course(replace(SERVER, config=PLAIN, num_steps=None))
    watcher = Watcher("http://s")
    view = watcher.see(course.look(), NOW)
    assert (view.state, view.depth) == ("plain", 0)
    view = watcher.see(course.look(100, accept=1.0), NOW)
    assert view.state == "plain"
    assert view.window is not None
    assert view.window.accept_length == 1
    assert view.break_even is None
    assert view.drift is None


def test_without_a_right_draft_nothing_is_known_unless_step_times_tell() -> None:
    """All drafts wrong and no drafts look alike but for the time that they take."""
    course, blind = Course(), Watcher("http://s")
    assert blind.see(course.look(), NOW).state == "unknown"
    view = blind.see(course.look(100, accept=1.0, ms=21.0), NOW)
    assert view.state == "unknown"
    assert "no draft was right in 400 request steps" in view.reason
    for ms, state in ((21.0, "speculating"), (14.0, "plain")):
        course, watcher = Course(), Watcher("http://s", known())
        watcher.see(course.look(), NOW)
        view = watcher.see(course.look(100, accept=1.0, ms=ms), NOW)
        assert view.state == state


def test_few_or_no_steps_leave_the_state_as_it_was() -> None:
    """An idle server is what it was when it last worked."""
    course, watcher = Course(), Watcher("http://s")
    watcher.see(course.look(100), NOW)
    watcher.see(course.look(100), NOW)
    view = watcher.see(course.look(0), NOW)
    assert view.state == "speculating"
    assert view.window is None
    assert view.throughput == 0.0
    assert watcher.see(course.look(2, batch=1, accept=1.0), NOW).state == "speculating"


def test_a_fallback_without_a_plugin_shows_in_the_steps() -> None:
    """Told once, and so is the return."""
    course, watcher = Course(), Watcher("http://s", known())
    watcher.see(course.look(100), NOW)
    watcher.see(course.look(100), NOW)
    view = watcher.see(course.look(100, accept=1.0, ms=14.0), NOW)
    assert kinds(watcher) == ["fallback"]
    assert view.events[0].text.startswith("fell back to plain decoding: ")
    watcher.see(course.look(100, accept=1.0, ms=14.0), NOW)
    assert kinds(watcher) == []
    watcher.see(course.look(100), NOW)
    assert kinds(watcher) == ["return"]


def test_sglangs_own_rule_names_the_depth() -> None:
    """Adaptive speculation is read from the server, and its drift is not judged."""
    server = replace(SERVER, adaptive=True)
    course, watcher = Course(server), Watcher("http://s", known())
    watcher.see(course.look(500), NOW)
    view = watcher.see(course.look(500), NOW)
    assert (view.state, view.depth) == ("speculating", 3)
    course.server = replace(server, num_steps=0)
    view = watcher.see(course.look(500, accept=1.0), NOW)
    assert (view.state, view.depth) == ("plain", 0)
    assert kinds(watcher) == ["fallback"]
    assert view.drift is not None
    assert view.drift.verdict == "unjudged"
    assert "adaptive rule" in view.drift.reason


def test_the_plugin_is_believed_and_its_fallbacks_are_counted() -> None:
    """Also one that was over before the next look; probes are no state."""
    course, watcher = Course(), Watcher("http://s", known())
    watcher.see(course.look(100, status=plugin(3, steps=100, fallbacks=4, recoveries=4)), NOW)
    assert kinds(watcher) == []
    said = plugin(3, steps=200, reason="1.66x", fallbacks=5, recoveries=5)
    view = watcher.see(course.look(100, status=said), NOW)
    assert kinds(watcher) == ["fallback", "return"]
    assert (view.state, view.depth) == ("speculating", 3)
    assert view.reason == "autospec's plugin: 1.66x"
    probing = replace(
        plugin(0, steps=300, fallbacks=6, recoveries=5),
        depth=3,
        decisions=(StatusEvent(250, 4, 0, "0.8x"), StatusEvent(299, 4, 3, "looks", "probe")),
    )
    view = watcher.see(course.look(100, accept=1.0, status=probing), NOW)
    assert kinds(watcher) == ["fallback"]
    assert (view.state, view.depth) == ("plain", 0)
    assert view.break_even == pytest.approx(1.5)
    assert [event.step for event in view.decisions] == [299, 250]


def test_break_even_is_by_the_step_times_that_the_plugin_works_with() -> None:
    """It measures on, so its own are newer; a profile is not needed then."""
    status = replace(
        plugin(3), step_time_ms={0: {1: 10.0, 8: 10.0}, 3: {1: 20.0, 8: 20.0}}, steps=100
    )
    for watcher in (Watcher("http://s"), Watcher("http://s", known())):
        course = Course()
        watcher.see(course.look(100, status=status), NOW)
        assert watcher.see(course.look(100, status=status), NOW).break_even == 2.0
    odd = replace(status, step_time_ms={0: {1: 10.0}, 3: {}})
    assert watcher.see(course.look(100, status=odd), NOW).break_even == pytest.approx(1.5)


def test_what_does_not_belong_together_is_noted() -> None:
    """Another model, another version of SGLang; the same model elsewhere is the same."""
    watcher = Watcher("http://s", known())
    moved = replace(SERVER, model="/data/m")
    assert watcher.see(Course(moved).look(), NOW).notes == ()
    other = replace(SERVER, model="models/other", version="0.4.1")
    notes = Watcher("http://s", known()).see(Course(other).look(), NOW).notes
    assert notes == (
        "the server is SGLang 0.4.1, autospec knows 0.5.23",
        "the server's model is models/other, p.yaml is of models/m",
    )


def test_an_inactive_plugin_decides_nothing() -> None:
    """Steps tell, as on a server without one."""
    status = replace(plugin(0), active=False, reason="trees cannot be switched")
    course, watcher = Course(), Watcher("http://s")
    watcher.see(course.look(100, status=status), NOW)
    assert watcher.see(course.look(100, status=status), NOW).state == "speculating"


def test_without_a_page_tokens_are_those_of_the_steps_or_the_servers_own_rate() -> None:
    """SGLang's own rate stays 0 without metrics, and lags with them."""
    course, watcher = Course(), Watcher("http://s")
    watcher.see(course.look(100), NOW)
    assert watcher.see(course.look(400), NOW).throughput == 400.0
    silent = course.look(100)
    silent = replace(silent, loads=replace(silent.loads, throughput=0.0))
    assert watcher.see(silent, NOW).throughput == 100.0


def test_tokens_are_counted_where_the_server_has_a_page_for_it() -> None:
    """Its own rate is of the last log interval; a count is of this one."""
    course, watcher = Course(), Watcher("http://s")
    watcher.see(course.look(100, tokens=1000.0), NOW)
    assert watcher.see(course.look(100, tokens=3000.0), NOW).throughput == 200.0


def test_drift_is_told_once_with_the_command_that_helps() -> None:
    """Steps that take half as long again as measured, block after block."""
    course, watcher = Course(), Watcher("http://s", known())
    told = []
    for _ in range(40):
        view = watcher.see(course.look(200, ms=31.0), NOW)
        told += watcher.new
    assert [event.kind for event in told] == ["drift"]
    assert told[0].command == "autospec tune models/m --prompts p.jsonl -o p.yaml"
    assert view.drift is not None
    assert view.drift.verdict == "misfit"
    assert view.drift.command == told[0].command
    assert "a step takes 31.00 ms" in view.drift.reason


def test_a_server_that_fits_is_said_to_fit() -> None:
    """Once a block was judged, not before."""
    course, watcher = Course(), Watcher("http://s", known())
    watcher.see(course.look(10), NOW)
    view = watcher.see(course.look(100), NOW)
    assert view.drift is not None
    assert view.drift.verdict == "unjudged"
    view = watcher.see(course.look(100), NOW)
    assert view.drift is not None
    assert (view.drift.verdict, view.drift.blocks) == ("fits", 1)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (plugin(0, steps=200, switches=1), "the depth has just changed"),
        (plugin(3, steps=200, switches=2), "the depth has just changed"),
        (plugin(3, steps=200, probe_steps=20), "the policy is trying other depths"),
    ],
)
def test_a_stretch_at_several_depths_is_not_judged(after: PluginStatus, why: str) -> None:
    """Its figures are of no single depth."""
    course, watcher = Course(), Watcher("http://s", known())
    watcher.see(course.look(100, status=plugin(3, steps=0)), NOW)
    view = watcher.see(course.look(200, status=after), NOW)
    assert view.drift is not None
    assert (view.drift.verdict, view.drift.reason) == ("unjudged", why)


def test_a_server_that_goes_and_comes_back() -> None:
    """Gone once however long it takes; nothing is counted across the gap."""
    course, watcher = Course(), Watcher("http://s", known())
    watcher.see(course.look(100), NOW)
    view = watcher.lost("connection refused", NOW)
    assert (view.state, view.reason) == ("gone", "connection refused")
    assert view.server is not None
    assert kinds(watcher) == ["gone"]
    watcher.lost("connection refused", NOW)
    assert kinds(watcher) == []
    view = watcher.see(course.look(100), NOW)
    assert kinds(watcher) == ["found"]
    assert view.window is None


def test_a_restarted_server_is_noticed_by_its_counters() -> None:
    """They begin anew; what was gathered before is dropped."""
    course, watcher = Course(), Watcher("http://s", known())
    watcher.see(course.look(500), NOW)
    watcher.see(course.look(500), NOW)
    again = Course(replace(SERVER, config=PLAIN, num_steps=None))
    again.time_s = course.time_s
    view = watcher.see(again.look(10, accept=1.0), NOW)
    assert kinds(watcher) == ["restarted"]
    assert (view.state, view.window) == ("plain", None)


def test_a_server_that_was_never_there_is_found() -> None:
    """Watching may begin before the server does."""
    watcher = Watcher("http://s")
    view = watcher.lost("connection refused", NOW)
    assert view.server is None
    watcher.see(Course().look(), NOW)
    assert kinds(watcher) == ["found"]


@given(
    st.lists(
        st.one_of(
            st.none(),
            st.tuples(st.integers(0, 300), st.integers(1, 9), st.floats(0.1, 99), st.floats(1, 4)),
        ),
        max_size=20,
    )
)
def test_any_course_can_be_shown_and_read_back(
    course_of: list[tuple[int, int, float, float] | None],
) -> None:
    """Gaps, idle stretches and odd figures: what is shown is whole and goes through JSON."""
    course, watcher = Course(), Watcher("http://s", known())
    for item in course_of:
        if item is None:
            view = watcher.lost("gone", NOW)
        else:
            steps, batch, ms, accept = item
            view = watcher.see(course.look(steps, batch=batch, ms=ms, accept=accept), NOW)
        assert schema.load(View, schema.dump(view), "view") == view
        assert len(view.events) <= 8
