"""The report as one HTML file that needs nothing else. The only file that knows jinja2."""

from __future__ import annotations

from importlib.metadata import version

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from autospec.evidence import Interval
from autospec.report import figures
from autospec.report.content import Content, environment_rows
from autospec.report.predicted import median_error
from autospec.report.tables import lossless_text, rate, ratio_text

__all__ = ["html_page"]


def html_page(content: Content) -> str:
    """The whole page. All text is escaped; there is no script and nothing is fetched."""
    jinja = Environment(
        loader=PackageLoader("autospec.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    jinja.filters |= {
        "rate": rate,
        "times": _times,
        "spread": lambda found: f"{rate(found.low)} to {rate(found.high)}",
        "lossless": lossless_text,
        "minutes": lambda seconds: "" if seconds is None else f"{seconds / 60:.1f}",
    }
    template = jinja.get_template("report.html.j2")
    return template.render(
        content=content,
        profile=content.profile,
        pictures=_pictures(content),
        environment=environment_rows(content),
        error=median_error(content.predictions) if content.predictions else None,
        version=version("sglang-autospec"),
    )


def _pictures(content: Content) -> dict[str, Markup]:
    """The figures that this content has data for."""
    drawn = {
        "throughput": figures.throughput_figure(content),
        "acceptance": figures.acceptance_figure(content),
        "steps": figures.step_time_figure(content),
        "predicted": figures.prediction_figure(content),
        "search": figures.search_figure(content),
    }
    # The pictures are our own, and matplotlib escapes the labels in them.
    return {name: Markup(svg) for name, svg in drawn.items() if svg is not None}  # noqa: S704 -- made above


def _times(ratio: float | Interval | None) -> str:
    return f"{ratio:.2f}x" if isinstance(ratio, float) else ratio_text(ratio)
