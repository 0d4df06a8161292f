"""From readings to what is shown, and to what happened. Pure: time is an argument."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Final

from autospec.control.costs import Costs, drafting_depth
from autospec.control.status import PluginStatus
from autospec.engine.capabilities import SUPPORTED_SGLANG
from autospec.errors import SchemaError
from autospec.measure.summary import server_delta
from autospec.measurement import ServerDelta
from autospec.watch.fit import Fit
from autospec.watch.known import Known
from autospec.watch.reading import Reading
from autospec.watch.state import Finding, find_state
from autospec.watch.view import Event, EventKind, ServerView, View, Window

__all__ = ["Watcher"]

#: Events and decisions that a view holds.
_SHOWN: Final = 8


class Watcher:
    """Follows one server.

    Attributes:
        new: events of the latest reading, oldest first.
    """

    def __init__(self, url: str, known: Known | None = None) -> None:
        """Begin.

        Args:
            url: the server's, for what is shown.
            known: what its profile says, if there is one.
        """
        self._url = url
        self._fit = Fit(known) if known else None
        self._last: Reading | None = None
        self._found: Finding | None = None
        self._speculated = self._fell = self._gone = False
        self._events: deque[Event] = deque(maxlen=_SHOWN)
        self.new: list[Event] = []

    def see(self, reading: Reading, now: datetime) -> View:
        """Take the next reading."""
        self.new = []
        last = self._continued(reading, now)
        counts = server_delta(last.loads.moments, reading.loads.moments) if last else None
        if self._fit is not None:
            self._fit.meet(reading.server)
        costs = self._fit.costs if self._fit else None
        found = find_state(reading, counts, costs, self._found)
        self._note_change(last, reading, found, now)
        if self._fit is not None and last is not None and counts is not None:
            for misfit in self._fit.learn(last, reading, found, counts):
                self._happened("drift", str(misfit), now, self._fit.view().command)
        self._last, self._found = reading, found
        window = None
        if last is not None and counts is not None:
            expected = _time_ms(costs, found.depth, counts.batch_size)
            window = _window(counts, reading.time_s - last.time_s, expected)
        throughput = _throughput(last, reading, counts)
        return self._view(reading, found, window, throughput, now)

    def lost(self, reason: str, now: datetime) -> View:
        """Take it that the server did not answer."""
        self.new = []
        if not self._gone:
            self._happened("gone", "the server does not answer", now)
        self._gone = True
        if self._fit is not None:
            self._fit.interrupt()
        return View(
            self._url,
            _iso(now),
            "gone",
            reason,
            server=_server(self._last) if self._last else None,
            drift=self._fit.view() if self._fit else None,
            events=tuple(reversed(self._events)),
        )

    def tell(self, text: str, now: datetime) -> None:
        """Note what came of a command."""
        self._events.append(Event(_iso(now), "command", text))

    def _happened(
        self, kind: EventKind, text: str, now: datetime, command: str | None = None
    ) -> None:
        event = Event(_iso(now), kind, text, command)
        self._events.append(event)
        self.new.append(event)

    def _continued(self, reading: Reading, now: datetime) -> Reading | None:
        """The reading before, if nothing parts the two."""
        last, was_gone, self._gone = self._last, self._gone, False
        if was_gone:
            self._happened("found", "the server answers", now)
        if last is None:
            return None
        before, after = last.loads.moments, reading.loads.moments
        counted = (after.num_steps if after else 0) >= (before.num_steps if before else 0)
        same = counted and last.server.config == reading.server.config
        if same and not was_gone:
            return last
        if not same:
            self._happened("restarted", f"another server: {reading.server.config.label}", now)
            self._speculated = self._fell = False
        self._found = None
        if self._fit is not None:
            self._fit.interrupt()
        return None

    def _note_change(
        self, last: Reading | None, reading: Reading, found: Finding, now: datetime
    ) -> None:
        """Find fallbacks and returns: the plugin counts its own, others show in the state."""
        before, after = last.status if last else None, reading.status
        if before is not None and after is not None and after.active:
            fell, came = (
                after.counters.get(name, 0) > before.counters.get(name, 0)
                for name in ("fallbacks", "recoveries")
            )
        else:
            fell = self._speculated and found.state == "plain"
            came = self._fell and found.state == "speculating"
        if fell:
            self._happened("fallback", f"fell back to plain decoding: {found.reason}", now)
        if came:
            self._happened("return", f"speculates again: {found.reason}", now)
        if found.state != "unknown":
            self._speculated = found.state == "speculating"
            self._fell = found.state == "plain" and (self._fell or fell)

    def _view(
        self,
        reading: Reading,
        found: Finding,
        window: Window | None,
        throughput: float,
        now: datetime,
    ) -> View:
        break_even = vs_plain = None
        depth = found.depth or drafting_depth(reading.server.config)
        costs = _refined(reading.status) or (self._fit.costs if self._fit else None)
        if window is not None and depth and costs is not None and depth in costs.depths:
            break_even = costs.break_even(depth, window.batch_size)
            if found.state == "speculating":
                vs_plain = window.accept_length / break_even
        decisions = reading.status.decisions[-_SHOWN:] if reading.status else ()
        return View(
            self._url,
            _iso(now),
            found.state,
            found.reason,
            server=_server(reading),
            running=reading.loads.running,
            waiting=reading.loads.waiting,
            throughput=throughput,
            window=window,
            depth=found.depth,
            break_even=break_even,
            vs_plain=vs_plain,
            drift=self._fit.view() if self._fit else None,
            decisions=tuple(reversed(decisions)),
            events=tuple(reversed(self._events)),
            notes=(*reading.notes, *_version(reading), *(self._fit.notes if self._fit else ())),
        )


def _refined(status: PluginStatus | None) -> Costs | None:
    """The step times that the plugin works with, which it measures on."""
    if status is None or not status.active or 0 not in status.step_time_ms:
        return None
    try:
        return Costs({depth: dict(row.items()) for depth, row in status.step_time_ms.items()})
    except SchemaError:
        return None


def _version(reading: Reading) -> tuple[str, ...]:
    version = reading.server.version
    if version == SUPPORTED_SGLANG:
        return ()
    return (f"the server is SGLang {version}, autospec knows {SUPPORTED_SGLANG}",)


def _time_ms(costs: Costs | None, depth: int | None, batch_size: float) -> float | None:
    """A step's time by the profile, where it is known."""
    if costs is None or depth is None or depth not in costs.depths:
        return None
    return costs.time_ms(depth, batch_size)


def _window(counts: ServerDelta, seconds: float, expected_ms: float | None) -> Window:
    return Window(
        seconds=seconds,
        num_steps=counts.num_steps,
        batch_size=counts.batch_size,
        step_time_ms=counts.step_time_ms,
        accept_length=counts.num_tokens / (counts.num_steps * counts.batch_size),
        profile_step_time_ms=expected_ms,
    )


def _throughput(last: Reading | None, reading: Reading, counts: ServerDelta | None) -> float:
    """Output tokens/s: of all decode steps where the server has a page for it.

    Elsewhere those of the steps that it counts, or its own rate where it knows one: the greater, as
    the counts leave out the steps beside a prefill.
    """
    if last is not None and last.decode_tokens is not None and reading.decode_tokens is not None:
        made = reading.decode_tokens - last.decode_tokens
        return max(0.0, made) / (reading.time_s - last.time_s)
    if last is None or counts is None:
        return reading.loads.throughput if reading.loads.running else 0.0
    return max(reading.loads.throughput, counts.num_tokens / (reading.time_s - last.time_s))


def _server(reading: Reading) -> ServerView:
    server = reading.server
    return ServerView(
        server.version, server.model, server.config.label, server.max_running_requests
    )


def _iso(now: datetime) -> str:
    return now.isoformat(timespec="seconds")
