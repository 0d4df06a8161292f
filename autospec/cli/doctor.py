"""``autospec doctor``: what is missing on this machine, before anything is launched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from autospec.cli.options import DRAFT, json_option, notify, shipped_profile

__all__ = ["doctor_command"]


@click.command("doctor")
@click.argument("target", metavar="[MODEL|PROFILE]", required=False)
@click.argument("extra", metavar="[-- SGLANG FLAGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--draft", "drafts", multiple=True, type=DRAFT, help="A draft model; repeatable.")
@click.option("--algorithm", "algorithms", multiple=True, help="Only these methods; repeatable.")
@click.option("--config", metavar="TEXT", help="One configuration, like 'NGRAM tokens=8'.")
@click.option("--device", help="cuda, cpu, ...  [default: what is here]")
@click.option("--tp-size", default=1, show_default=True, type=click.IntRange(min=1), help="GPUs.")
@click.option("--port", type=click.IntRange(1, 65535), help="Port that you want to serve on.")
@json_option
@click.pass_context
def doctor_command(context: click.Context, /, **options: Any) -> None:
    """Say what is installed, what is missing, and what would go wrong here.

    Every finding comes with its fix. Exit code 1 when something is in the way, else 0.

    \b
    autospec doctor
    autospec doctor models/llama --draft EAGLE3=models/draft
    autospec doctor llama.yaml --port 30000
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec import schema
    from autospec.config import SpecConfig
    from autospec.doctor.run import Question, examine
    from autospec.profile import load_profile
    from autospec.report.doctor import print_checkup
    from autospec.tuning.places import put_in_place

    target = options["target"]
    extra = options["extra"]
    if target is not None and target.startswith("-"):
        # Without MODEL, the first pass-through flag lands in its place.
        target, extra = None, (target, *extra)
    profile = _profile(target)
    checkup = examine(
        Question(
            model=target if profile is None else None,
            profile=None if profile is None else put_in_place(load_profile(profile), notify),
            drafts=options["drafts"],
            algorithms=tuple(name.upper() for name in options["algorithms"]),
            config=SpecConfig.parse(options["config"]) if options["config"] else None,
            device=options["device"],
            tp_size=options["tp_size"],
            port=options["port"],
            extra=extra,
        )
    )
    if options["as_json"]:
        result = {**schema.dump(checkup), "blocked": checkup.blocked}
        click.echo(json.dumps(result, indent=2))
    else:
        print_checkup(checkup)
    context.exit(1 if checkup.blocked else 0)


def _profile(target: str | None) -> Path | None:
    """The file of the profile that is asked about, which may be a shipped one's name."""
    if target is None:
        return None
    path = Path(target)
    return path if path.suffix in (".yaml", ".yml") else shipped_profile(target)
