"""``autospec export``: a profile in the words of whoever serves it."""

from __future__ import annotations

from pathlib import Path

import click

from autospec.cli.options import PROFILE, model_option, notify

__all__ = ["export_command"]

#: The keys of ``autospec.exports.forms.FORMS``, which loads more than ``--help`` should wait for.
FORM_NAMES = ("args", "env", "json", "sglang-adaptive", "vllm", "tensorrt-llm", "k8s")


@click.command("export")
@click.argument("path", metavar="PROFILE", type=PROFILE)
@click.option("--format", "form", required=True, type=click.Choice(FORM_NAMES), help="What for.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="File.  [default: standard output]"
)
@model_option
def export_command(path: Path, *, form: str, output: Path | None, model: str | None) -> None:
    """Write a profile's settings for SGLang, another engine or Kubernetes.

    What the target cannot express is said on standard error, and in the file where it may hold
    comments. Unlike args and serve it does not ask whether the profile belongs to this machine.

    \b
    autospec export PROFILE --format vllm -o vllm.yaml
    autospec export PROFILE --format sglang-adaptive -o adaptive.json
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec import schema
    from autospec.exports.forms import FORMS
    from autospec.profile import load_profile
    from autospec.tuning.places import put_in_place

    profile = load_profile(path)
    if model is not None:
        profile = profile.with_model(model)
    export = FORMS[form](put_in_place(profile, notify))
    for note in export.notes:
        click.echo(f"note: {note}", err=True)
    if output is None:
        click.echo(export.text, nl=False)
    else:
        schema.write_text(output, export.text)
        click.echo(f"wrote {output}", err=True)
