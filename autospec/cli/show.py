"""``autospec show``: what a profile or a study holds."""

from __future__ import annotations

import json
from pathlib import Path

import click

from autospec.cli.options import PROFILE, json_option

__all__ = ["show_command"]


@click.command("show")
@click.argument("path", metavar="PROFILE|STUDY", type=PROFILE)
@json_option
def show_command(path: Path, *, as_json: bool) -> None:
    """Show a profile, or a study finished or not."""
    from autospec import schema
    from autospec.profile import load_profile
    from autospec.report.terminal import print_profile, print_study
    from autospec.tune.study import Study

    if path.is_dir():
        with Study.open(path) as study:
            if as_json:
                trials = [schema.dump(trial) for trial in study.trials()]
                document = {"request": study.request, "trials": trials}
                click.echo(json.dumps(document, indent=2))
            else:
                print_study(study)
        return
    profile = load_profile(path)
    if as_json:
        click.echo(json.dumps(schema.dump(profile), indent=2))
    else:
        print_profile(profile, path)
