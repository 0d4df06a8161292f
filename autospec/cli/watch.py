"""``autospec watch``: a running server, as it goes."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autospec.cli.options import api_key_option, json_option, read_api_key

if TYPE_CHECKING:
    from autospec.watch.run import Watching
    from autospec.watch.view import View

__all__ = ["watch_command"]


@click.command("watch")
@click.argument("url", metavar="URL")
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path),
    help="What the server should do: break-even and drift are judged by it.",
)
@click.option("--once", is_flag=True, help="Look for one interval, then stop.")
@click.option(
    "--interval",
    default="2s",
    show_default=True,
    metavar="TIME",
    help="Time between two looks.",
)
@click.option(
    "--exec",
    "command",
    metavar="CMD",
    help="Run this on a fallback or a drift alarm, without a shell; the event is JSON on its "
    "standard input.",
)
@click.option(
    "--status",
    "status_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where autospec's plugin in the server writes.  [default: of a local server, its own]",
)
@api_key_option
@json_option
def watch_command(
    url: str,
    *,
    profile_path: Path | None,
    once: bool,
    interval: str,
    command: str | None,
    status_file: Path | None,
    api_key_env: str,
    as_json: bool,
) -> None:
    """Show a running SGLang server: throughput, acceptance, decisions, and whether it still fits.

    Ctrl-C ends it. With --json every look is one line.

    \b
    autospec watch http://127.0.0.1:30000 --profile llama.yaml
    autospec watch http://127.0.0.1:30000 --once --json
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    import asyncio

    from autospec.engine.address import checked_url
    from autospec.profile import load_profile
    from autospec.tune.budget import parse_duration
    from autospec.watch.hook import split_command
    from autospec.watch.known import know
    from autospec.watch.run import Watching, watch_once

    if once and command is not None:
        raise click.UsageError("--exec needs more than one look: leave out --once")
    asked = Watching(
        url=checked_url(url),
        api_key=read_api_key(api_key_env),
        interval_s=parse_duration(interval),
        known=know(load_profile(profile_path), profile_path) if profile_path else None,
        status_file=status_file,
        command=None if command is None else split_command(command),
    )
    if not once:
        asyncio.run(_follow(asked, as_json=as_json))
        return
    view = asyncio.run(watch_once(asked))
    if as_json:
        click.echo(_json(view, indent=2))
    else:
        from autospec.report.watch import print_view

        print_view(view)


async def _follow(asked: Watching, *, as_json: bool) -> None:
    from autospec.report.watch import WatchScreen
    from autospec.watch.run import watch

    async with contextlib.aclosing(watch(asked)) as views:
        if as_json:
            async for view in views:
                click.echo(_json(view))
            return
        with WatchScreen() as screen:
            async for view in views:
                screen.show(view)


def _json(view: View, *, indent: int | None = None) -> str:
    from autospec.schema import dump

    document = dump(view)
    return json.dumps({"schema": document.pop("schema"), **document}, indent=indent)
