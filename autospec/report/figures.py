"""The pictures of a report, as SVG to be put into a page. The only file that knows matplotlib.

Colours are written as variables of the page's style sheet, so that one picture is readable in
light, in dark and on paper. Text stays text.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autospec.config import SpecConfig
from autospec.evidence import Point
from autospec.report.content import Content

__all__ = [
    "acceptance_figure",
    "prediction_figure",
    "search_figure",
    "step_time_figure",
    "throughput_figure",
]

#: Arms in the picture of throughputs; the table beside it has all.
_MOST_ARMS: Final = 14
#: Lines in the picture of step times.
_MOST_LINES: Final = 8
_COLUMNS: Final = 4
_WIDTH: Final = 10.0

#: What matplotlib draws with, and the variable of the page that takes its place.
_TEXT, _GRID, _PLAIN = "#010101", "#020202", "#030303"
_SERIES: Final = tuple(f"#0400{i:02x}" for i in range(8))
_VARIABLES: Final = {
    _TEXT: "--text",
    _GRID: "--grid",
    _PLAIN: "--plain",
    **{colour: f"--series-{i}" for i, colour in enumerate(_SERIES)},
}
_METHODS: Final = ("NGRAM", "STANDALONE", "EAGLE", "EAGLE3", "NEXTN", "DFLASH", "DSPARK", "UNO")

_STYLE: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "autospec",
    "text.color": _TEXT,
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _TEXT,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "xtick.color": _TEXT,
    "ytick.color": _TEXT,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


def throughput_figure(content: Content) -> str | None:
    """Output tokens/s of each arm at each load, with the lowest and highest pass."""
    loads = sorted({point.concurrency for point in content.points})
    if not loads:
        return None
    arms = _arms(content)
    rows = math.ceil(len(loads) / _COLUMNS)
    columns = min(_COLUMNS, len(loads))
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, rows * (0.9 + 0.27 * len(arms))), layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
        for axis, load in zip(axes, loads, strict=False):
            at_load = [point for point in content.points if point.concurrency == load]
            _draw_load(axis, load, arms, at_load)
        for axis in axes[len(loads) :]:
            axis.set_visible(False)
        axes[0].set_yticks(range(len(arms)), [arm.label for arm in arms])
        axes[0].set_ylim(len(arms) - 0.5, -0.5)
        return _svg(figure, "throughput", "Throughput of each configuration at each load")


def acceptance_figure(content: Content) -> str | None:
    """Share of verify steps whose first 1, 2, ... drafts were all right, by class."""
    rows = [row for row in content.acceptance if row.accept_rate_per_pos]
    if not rows:
        return None
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.4), layout="constrained")
        axis = figure.subplots()
        for place, row in enumerate(rows):
            positions = range(1, len(row.accept_rate_per_pos) + 1)
            axis.plot(
                positions,
                [100 * rate for rate in row.accept_rate_per_pos],
                marker="o",
                color=_TEXT if row.label is None else _SERIES[(place - 1) % len(_SERIES)],
                linewidth=2.2 if row.label is None else 1.4,
                label=f"{row.label or 'all prompts'} (accept length {row.accept_length:.2f})",
            )
        deepest = max(len(row.accept_rate_per_pos) for row in rows)
        axis.set_xticks(range(1, deepest + 1))
        axis.set_ylim(0, 100)
        axis.set_xlabel("position of the draft")
        axis.set_ylabel("right up to here (% of verify steps)")
        axis.set_title(f"Acceptance by position: {rows[0].config.label}", loc="left")
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return _svg(figure, "acceptance", "Acceptance by position and class")


def step_time_figure(content: Content) -> str | None:
    """Step time against batch size: what the server counted, and a line through it."""
    configs = _timed(content)
    if not configs:
        return None
    fits = {fit.config: fit for fit in content.fits}
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.8), layout="constrained")
        axis = figure.subplots()
        for place, config in enumerate(configs):
            rows = [row for row in content.step_times if row.config == config]
            colour = _PLAIN if config.is_plain else _SERIES[place % len(_SERIES)]
            batches = [row.batch_size for row in rows]
            axis.plot(
                batches,
                [row.step_time_ms for row in rows],
                linestyle="none",
                marker="D" if config.is_plain else "o",
                color=colour,
                label=config.label,
            )
            if config in fits:
                fit, ends = fits[config], (min(batches), max(batches))
                line = [fit.floor_ms + fit.slope_ms * batch for batch in ends]
                axis.plot(ends, line, color=colour, linewidth=1.3)
        axis.set_ylim(bottom=0)
        axis.set_xlim(left=0)
        axis.set_xlabel("batch size (running requests a step)")
        axis.set_ylabel("step time (ms)")
        axis.set_title("Step time against batch size, drafting included", loc="left")
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return _svg(figure, "steps", "Step time against batch size")


def prediction_figure(content: Content) -> str | None:
    """What the cost model expected of arms that it was not shown, against what they made."""
    rows = content.predictions
    if not rows:
        return None
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 4.2), layout="constrained")
        axis = figure.subplots()
        for method in dict.fromkeys(row.config.algorithm for row in rows):
            chosen = [row for row in rows if row.config.algorithm == method]
            axis.errorbar(
                [row.measured for row in chosen],
                [row.predicted for row in chosen],
                yerr=[
                    [row.predicted - row.low for row in chosen],
                    [row.high - row.predicted for row in chosen],
                ],
                fmt="o",
                markersize=5,
                linewidth=1.0,
                color=_method_colour(method),
                label=method,
            )
        ends = (min(row.measured for row in rows), max(row.measured for row in rows))
        axis.plot(ends, ends, color=_PLAIN, linewidth=1.2, linestyle="--", label="as predicted")
        axis.set_xlabel("measured throughput over plain decoding's (x)")
        axis.set_ylabel("predicted (x)")
        axis.set_title("Predicted against measured", loc="left")
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return _svg(figure, "predicted", "Predicted against measured throughput")


def search_figure(content: Content) -> str | None:
    """What each trial came to over the time spent, and the best so far."""
    rows = [row for row in content.trials if row.kind == "tune" and row.seconds is not None]
    if len(rows) < 2:
        return None
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 3.6), layout="constrained")
        axis = figure.subplots()
        ended = [(row, (row.began_s + (row.seconds or 0.0)) / 60) for row in rows]
        best, path = 1.0, []
        for row, minute in ended:
            if row.vs_plain is not None:
                best = max(best, row.vs_plain)
                path.append((minute, best))
        axis.step(*zip(*path, strict=True), where="post", color=_TEXT, label="best so far")
        for method in dict.fromkeys(row.config.algorithm for row, _ in ended):
            chosen = [(m, r.vs_plain) for r, m in ended if r.config.algorithm == method]
            found = [(minute, value) for minute, value in chosen if value is not None]
            if found:
                x, y = zip(*found, strict=True)
                axis.scatter(x, y, s=26, color=_method_colour(method), label=method, zorder=3)
        failed = [minute for row, minute in ended if row.state == "failed"]
        if failed:
            low = axis.get_ylim()[0]
            axis.scatter(failed, [low] * len(failed), marker="x", color=_SERIES[4], label="failed")
        axis.axhline(1.0, color=_PLAIN, linewidth=1.2, linestyle="--")
        axis.set_xlabel("time in trials (min)")
        axis.set_ylabel("objective over plain decoding's (x)")
        axis.set_title("Search path", loc="left")
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0))
        return _svg(figure, "search", "What each trial of the search came to")


def _arms(content: Content) -> list[SpecConfig]:
    """Plain decoding and the best configurations, in the order of the points."""
    return list(dict.fromkeys(point.config for point in content.points))[:_MOST_ARMS]


def _timed(content: Content) -> list[SpecConfig]:
    """Plain decoding and the best configurations with step times."""
    timed = {row.config for row in content.step_times}
    order = dict.fromkeys(point.config for point in content.points)
    return [config for config in order if config in timed][:_MOST_LINES]


def _draw_load(axis: Axes, load: int, arms: Sequence[SpecConfig], points: Sequence[Point]) -> None:
    for point in points:
        if point.config not in arms:
            continue
        held_out = point.part == "confirm"
        figure, row = point.output_throughput, arms.index(point.config)
        at = row + (0.17 if held_out else -0.05)
        colour = _method_colour(point.config.algorithm)
        axis.plot((figure.low, figure.high), (at, at), color=colour, linewidth=1.6)
        marker = "D" if held_out else "o"
        axis.plot(figure.value, at, marker=marker, color=colour, markersize=6 - held_out)
        if point.config.is_plain:
            style = ":" if held_out else "--"
            axis.axvline(figure.value, color=_PLAIN, linewidth=1.0, linestyle=style)
    axis.set_title(f"{load} in flight", loc="left")
    axis.set_xlabel("output tokens/s")
    axis.tick_params(axis="y", length=0)


def _method_colour(algorithm: str) -> str:
    if algorithm == "PLAIN":
        return _PLAIN
    place = _METHODS.index(algorithm) if algorithm in _METHODS else len(_METHODS) - 1
    return _SERIES[place]


def _svg(figure: Figure, name: str, title: str) -> str:
    """The picture as an element of a page, its ids apart from those of other pictures."""
    stream = io.StringIO()
    figure.savefig(
        stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    text = stream.getvalue()
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    head = f'<svg role="img" aria-label="{title}" class="figure"'
    return text.replace("<svg", head, 1)
