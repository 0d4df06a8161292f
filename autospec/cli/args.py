"""``autospec args``: the flags of a profile, for a launch by hand."""

from __future__ import annotations

from pathlib import Path

import click

from autospec.cli.options import PROFILE, force_option, json_option, model_option, notify

__all__ = ["args_command"]


@click.command("args")
@click.argument("path", metavar="PROFILE", type=PROFILE)
@click.option("--env", "as_env", is_flag=True, help="Print environment variables, not flags.")
@model_option
@force_option
@json_option
def args_command(
    path: Path, *, as_env: bool, model: str | None, force: bool, as_json: bool
) -> None:
    """Print the SGLang flags of a profile, quoted for a shell.

    \b
    python -m sglang.launch_server $(autospec args PROFILE)
    env $(autospec args PROFILE --env) python -m sglang.launch_server ...
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec.exports.forms import FORMS
    from autospec.profile import load_profile
    from autospec.tuning.deploy import fit_profile

    profile = fit_profile(load_profile(path), model=model, force=force, notify=notify)
    if profile.choice.config.is_plain and not as_json:
        click.echo(f"plain decoding: {profile.verdict.reason}", err=True)
    form = "json" if as_json else "env" if as_env else "args"
    click.echo(FORMS[form](profile).text, nl=False)
