"""``autospec refresh``: a profile's step times, from the server that it runs on."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["refresh_command"]


@click.command("refresh")
@click.argument("path", metavar="PROFILE", type=click.Path(path_type=Path))
@click.option("--url", required=True, help="The server's address, on this machine.")
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="The new profile."
)
def refresh_command(path: Path, *, url: str, output: Path) -> None:
    """Write a profile anew with the step times that its server has seen since.

    The server's policy corrects them while it works. What the profile decided is not measured anew:
    that takes autospec tune.
    """
    from autospec.profile import load_profile, save_profile
    from autospec.tuning.refresh import refresh, status_of_server

    refreshed = refresh(load_profile(path), status_of_server(url, path), str(path))
    for line in refreshed.changes:
        click.echo(line)
    if not refreshed.changes:
        click.echo("nothing differs by more than noise")
    save_profile(output, refreshed.profile)
    click.echo(f"wrote {output}; next: autospec serve {output}", err=True)
