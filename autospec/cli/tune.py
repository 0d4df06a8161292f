"""``autospec tune``: measure, search, decide, write a profile."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autospec.cli.options import CONCURRENCY, DRAFT, json_option
from autospec.cli.tune_demo import MAY_CHANGE, demo_study, demo_values, given_options
from autospec.errors import InterruptedStudyError
from autospec.tuning.request import TuneRequest

if TYPE_CHECKING:
    from autospec.tuning.run import TuneListener

__all__ = ["tune_command"]

_DEFAULT: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(TuneRequest)}


@click.command("tune")
@click.argument("model", required=False)
@click.argument("extra", metavar="[-- SGLANG FLAGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--prompts", metavar="FILE|-", help="Your prompts: JSONL or one text a line.")
@click.option("--draft", "drafts", multiple=True, type=DRAFT, help="A draft model; repeatable.")
@click.option("--algorithm", "algorithms", multiple=True, help="Only these methods; repeatable.")
@click.option(
    "--space",
    default=_DEFAULT["space"],
    metavar="WORDS",
    help="Narrow the space, like 'tokens=4,8 EAGLE3.topk=1'.",
)
@click.option(
    "--corpus",
    default=_DEFAULT["corpus"],
    metavar="answers|FILE",
    help="NGRAM's corpus: built from plain answers, or JSON strings.",
)
@click.option(
    "--concurrency",
    "concurrencies",
    type=CONCURRENCY,
    default=_DEFAULT["concurrencies"],
    help="Loads, as requests in flight.  [default: 1,8,32]",
)
@click.option("--budget", metavar="TIME", help="Wall time, like 45m; obeyed over all sessions.")
@click.option("--max-trials", type=click.IntRange(min=1), help="Candidates to measure.")
@click.option(
    "--sampler",
    default=_DEFAULT["sampler"],
    show_default=True,
    help="structured, gp, random, grid.",
)
@click.option(
    "--objective",
    default=_DEFAULT["objective"],
    show_default=True,
    help="throughput, latency, or goodput (with --slo).",
)
@click.option(
    "--slo", default=_DEFAULT["slo"], metavar="LIMITS", help="In ms: 'ttft_ms=300 tpot_ms=40'."
)
@click.option(
    "--seed",
    default=_DEFAULT["seed"],
    show_default=True,
    type=click.IntRange(min=0),
    help="Of the split, the search and the server.",
)
@click.option(
    "--repeats",
    default=_DEFAULT["repeats"],
    show_default=True,
    type=int,
    help="Passes at each load, 3 or more.",
)
@click.option(
    "--race/--no-race",
    "racing",
    default=_DEFAULT["racing"],
    show_default=True,
    help="Stop a candidate early that is clearly behind.",
)
@click.option(
    "--depth-sweep/--no-depth-sweep",
    default=_DEFAULT["depth_sweep"],
    show_default=True,
    help="Measure depths of a chain (topk 1, one rank) in one launch.",
)
@click.option(
    "--finalists",
    default=_DEFAULT["finalists"],
    show_default=True,
    type=int,
    help="Confirmed at most: the best, and what looks as good.",
)
@click.option(
    "--confirm-rounds",
    default=_DEFAULT["confirm_rounds"],
    show_default=True,
    type=int,
    help="Of a launch a finalist and 2 of plain; one is enough if clear.",
)
@click.option(
    "--lossless-prompts",
    default=_DEFAULT["lossless_prompts"],
    show_default=True,
    type=int,
    help="Held-out prompts whose greedy answers are compared.",
)
@click.option("--allow-lossy", is_flag=True, help="Deploy what is faster though answers differ.")
@click.option("--requests-per-pass", type=int, help="Prompts a pass.  [default: the whole part]")
@click.option(
    "--max-new-tokens",
    default=_DEFAULT["max_new_tokens"],
    show_default=True,
    type=int,
    help="Longest answer where the prompt file sets none.",
)
@click.option(
    "--temperature",
    default=_DEFAULT["temperature"],
    show_default=True,
    type=float,
    help="Of sampling; 0 takes the most likely token.",
)
@click.option("--device", help="cuda, cpu, ...  [default: what is here]")
@click.option("--dtype", default=_DEFAULT["dtype"], show_default=True, help="As SGLang names it.")
@click.option(
    "--tp-size",
    default=_DEFAULT["tp_size"],
    show_default=True,
    type=int,
    help="GPUs for the target.",
)
@click.option("--max-running-requests", type=int, help="Admission limit of every arm.")
@click.option("--mem-fraction-static", type=float, help="Memory share of every arm.")
@click.option("--max-total-tokens", type=int, help="KV cache of every arm, in tokens.")
@click.option("--attention-backend", help="Of every arm.  [default: each arm's own best]")
@click.option("--page-size", type=int, help="Of every arm.  [default: each arm's own best]")
@click.option("--context-length", type=int, help="Longest prompt and answer, in tokens.")
@click.option(
    "--launch-timeout",
    default="10m",
    show_default=True,
    metavar="TIME",
    help="How long a server may take to be ready.",
)
@click.option(
    "--stall-timeout",
    default="2m",
    show_default=True,
    metavar="TIME",
    help="How long a server may send nothing in a pass.",
)
@click.option(
    "-o",
    "--output",
    default=_DEFAULT["output"],
    show_default=True,
    metavar="FILE",
    help="Where the profile goes.",
)
@click.option("--study", type=click.Path(path_type=Path), help="New folder for the study.")
@click.option("--resume", type=click.Path(path_type=Path), help="Go on with this study.")
@click.option("--demo", is_flag=True, help="A real 135M model on this machine's CPU.")
@json_option
@click.pass_context
def tune_command(context: click.Context, /, **options: Any) -> None:
    """Find the best way to decode MODEL on your prompts, or that plain decoding is best.

    \b
    autospec tune models/llama --prompts traffic.jsonl --draft EAGLE3=models/draft
    autospec tune --demo
    autospec tune --resume STUDY
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec.report.live import TuneView
    from autospec.report.terminal import print_result
    from autospec.tuning.run import resume_tune, start_tune

    command = "autospec " + shlex.join(sys.argv[1:])
    with TuneView() as view:
        if options["demo"]:
            options |= demo_study(context, options, view)
        if options["resume"] is not None:
            folder = options["resume"]
            study = partial(resume_tune, folder, changes=_changes(context, options))
        else:
            request = _request(context, options, view)
            folder = options["study"] or _new_folder(request.model)
            study = partial(start_tune, request, folder)
        try:
            profile, output = study(command=command, listener=view)
        except KeyboardInterrupt as error:
            raise _interrupted(folder) from error
    if options["as_json"]:
        from autospec import schema
        from autospec.control.choose import sibling_policy

        result = {
            "profile": schema.dump(profile),
            "path": str(output),
            "policy": str(sibling_policy(output)),
            "study": str(folder),
        }
        click.echo(json.dumps(result, indent=2))
    else:
        print_result(profile, output, folder)


def _changes(context: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """What a resumed study's request is to get anew."""
    given = given_options(context, options)
    foreign = sorted(set(given) - MAY_CHANGE)
    if foreign:
        raise click.UsageError(
            f"--resume takes everything from the study, so {foreign[0]} cannot be given; "
            "only --budget, --max-trials, --allow-lossy and --output may change"
        )
    changes: dict[str, Any] = {
        name: given[name] for name in ("max_trials", "allow_lossy", "output") if name in given
    }
    if "budget" in given:
        changes["budget_s"] = _seconds(given["budget"])
    return changes


def _request(context: click.Context, options: dict[str, Any], view: TuneListener) -> TuneRequest:
    values = dict(options)
    if values["demo"]:
        values = demo_values(context, values, view)
    if not values["model"] or not values["prompts"]:
        raise click.UsageError("give MODEL and --prompts FILE, or --demo, or --resume STUDY")
    prompts = values["prompts"]
    values["prompts"] = prompts if prompts == "-" else str(Path(prompts).absolute())
    values["algorithms"] = tuple(name.upper() for name in values["algorithms"])
    values["budget_s"] = _seconds(values["budget"])
    values["launch_timeout_s"] = _seconds(values["launch_timeout"])
    values["stall_timeout_s"] = _seconds(values["stall_timeout"])
    fields = {field.name for field in dataclasses.fields(TuneRequest)}
    return TuneRequest(**{name: value for name, value in values.items() if name in fields})


def _seconds(text: str | None) -> float | None:
    from autospec.tune.budget import parse_duration

    return None if text is None else parse_duration(text)


def _new_folder(model: str) -> Path:
    name = Path(model).name or "model"
    return Path("autospec-studies") / f"{time.strftime('%Y%m%d-%H%M%S')}-{name}"


def _interrupted(folder: Path) -> InterruptedStudyError:
    if not folder.exists():
        return InterruptedStudyError("interrupted before the study began; nothing was kept")
    return InterruptedStudyError(
        f"interrupted; go on with: autospec tune --resume {shlex.quote(str(folder))}"
    )
