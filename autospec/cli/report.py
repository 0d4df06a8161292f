"""``autospec report``: what a study found and how, for a person to read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autospec.cli.options import PROFILE
from autospec.errors import ReportError

if TYPE_CHECKING:
    from autospec.report.content import Content

__all__ = ["report_command"]


@click.command("report")
@click.argument("path", metavar="STUDY|PROFILE", type=PROFILE)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="File.  [default: report.html; standard output for md and json]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("html", "md", "json")),
    help="Of the report.  [default: by the file's name, else html]",
)
def report_command(path: Path, *, output: Path | None, form: str | None) -> None:
    """Show what was found, how sure it is, and how it came about.

    A study tells the whole search, a profile its result. The HTML file is self-contained.

    \b
    autospec report autospec-studies/demo -o report.html
    autospec report llama.yaml --format md
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec import schema
    from autospec.report.content import gather

    form = form or {".md": "md", ".json": "json"}.get(output.suffix if output else "", "html")
    content = gather(path)
    if form == "html":
        output = output or Path("report.html")
        text = _page(content)
    elif form == "md":
        from autospec.report.markdown import markdown_page

        text = markdown_page(content)
    else:
        text = f"{json.dumps(schema.dump(content), indent=2)}\n"
    if output is None:
        click.echo(text, nl=False)
        return
    schema.write_text(output, text)
    click.echo(f"wrote {output}", err=True)


def _page(content: Content) -> str:
    try:
        from autospec.report.page import html_page
    except ImportError as error:
        raise ReportError(
            f"{error.name} is missing; pip install 'sglang-autospec[report]', or --format md"
        ) from error
    return html_page(content)
