"""A watched server on the terminal: a picture that renews itself, or one line a reading."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autospec.control.status import StatusEvent
from autospec.report.tables import rate
from autospec.watch.view import View

__all__ = ["WatchScreen", "print_view", "view_line"]

#: Lines of decisions and of events; with the rest they fill a terminal of 24 lines.
_SHOWN: Final = 4
_STYLE: Final = {"speculating": "green", "plain": "yellow", "unknown": "", "gone": "red"}


class WatchScreen:
    """Shows view after view; use it in ``with``.

    Args:
        console: where to write; standard output by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False)
        self._live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def show(self, view: View) -> None:
        """Show how the server is now."""
        if self._console.is_terminal:
            self._live.update(_picture(view), refresh=True)
        else:
            self._console.print(view_line(view), markup=False, soft_wrap=True)


def print_view(view: View) -> None:
    """Show one view on standard output."""
    Console(highlight=False).print(_picture(view))


def view_line(view: View) -> str:
    """The view as one line, for a log."""
    parts = [view.time, view.state]
    if view.state == "gone":
        return " ".join([*parts, view.reason])
    parts.append(f"{view.running} running {view.waiting} waiting {rate(view.throughput)} tok/s")
    if view.window is not None:
        parts.append(f"accept {view.window.accept_length:.2f}")
    if view.break_even is not None:
        parts.append(f"break-even {view.break_even:.2f}")
    if view.drift is not None:
        parts.append(f"drift {view.drift.verdict}")
    return " ".join(parts)


def _picture(view: View) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="bold", no_wrap=True, width=10)
    grid.add_column(overflow="fold")
    for name, text in _rows(view):
        style = _STYLE[view.state] if name == "state" else ""
        grid.add_row(name, Text(text, style=style))
    parts: list[RenderableType] = [grid]
    if view.decisions:
        parts.append(_decisions(view.decisions[:_SHOWN]))
    return Group(*parts)


def _rows(view: View) -> Iterator[tuple[str, str]]:
    yield "server", view.url
    if view.server is not None:
        yield "", f"{view.server.config}, SGLang {view.server.version}, {view.server.model}"
    if view.state == "gone":
        yield "state", f"no answer: {view.reason}"
    else:
        depth = f" at depth {view.depth}" if view.state == "speculating" else ""
        yield "state", f"{view.state}{depth}: {view.reason}"
        yield from _figures(view)
    if view.drift is not None:
        blocks = view.drift.blocks
        judged = f" ({blocks} block{'s' * (blocks > 1)} judged)" if blocks else ""
        yield "drift", f"{view.drift.verdict}: {view.drift.reason}{judged}"
        if view.drift.command is not None:
            yield "", f"tune again: {view.drift.command}"
    for note in view.notes:
        yield "note", note
    for number, event in enumerate(view.events[:_SHOWN]):
        # The time of day is enough while one watches.
        yield "" if number else "events", f"{event.time[11:19]} {event.kind}: {event.text}"


def _figures(view: View) -> Iterator[tuple[str, str]]:
    limit = f" of {view.server.max_running_requests}" if view.server else ""
    yield "requests", f"{view.running} running{limit}, {view.waiting} waiting"
    yield "throughput", f"{rate(view.throughput)} tok/s"
    window = view.window
    if window is None:
        yield "steps", "none since the last look"
        return
    profile = window.profile_step_time_ms
    by_profile = "" if profile is None else f", by the profile {profile:.2f} ms"
    steps = f"{window.num_steps} in {window.seconds:.1f} s, batch size {window.batch_size:.1f}"
    yield "steps", f"{steps}, {window.step_time_ms:.2f} ms each{by_profile}"
    text = f"{window.accept_length:.2f} tokens a step and request"
    if view.break_even is not None:
        text += f", break-even {view.break_even:.2f}"
    if view.vs_plain is not None:
        text += f": {view.vs_plain:.2f}x of plain"
    yield "accept", text


def _decisions(decisions: tuple[StatusEvent, ...]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), expand=True)
    for heading in ("step", "batch", "depth"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("latest decisions", no_wrap=True, overflow="ellipsis", ratio=1)
    for event in decisions:
        probe = "probe: " if event.want == "probe" else ""
        reason = Text(probe + event.reason)
        table.add_row(str(event.step), str(event.batch_size), str(event.depth), reason)
    return table
