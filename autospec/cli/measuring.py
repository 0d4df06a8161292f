"""What ``autospec bench`` and ``autospec compare`` share: options, and what they mean."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from autospec.bench.request import LaunchSettings, Traffic
from autospec.cli.options import CONCURRENCY, api_key_option, json_option, read_api_key
from autospec.metrics import Slo

if TYPE_CHECKING:
    from autospec.bench.plan import Plan
    from autospec.bench.target import Target

__all__ = ["check_output", "emit", "measuring_options", "prepare", "this_command"]

F = TypeVar("F", bound=Callable[..., Any])

#: What ``--demo`` uses where the user says nothing.
_DEMO: Final[dict[str, Any]] = {"concurrencies": (1, 4), "requests_per_pass": 6}
#: The same for the server of a configuration; profiles and running servers have theirs.
_DEMO_SERVER: Final[dict[str, Any]] = {"device": "cpu", "mem_fraction_static": 0.2}
_TRAFFIC: Final = {field.name: field.default for field in dataclasses.fields(Traffic)}
_LAUNCH: Final = {field.name: field.default for field in dataclasses.fields(LaunchSettings)}

_OPTIONS: Final = (
    click.option("--prompts", metavar="FILE|-", help="Your prompts: JSONL or one text a line."),
    click.option(
        "--concurrency",
        "concurrencies",
        type=CONCURRENCY,
        default=_TRAFFIC["concurrencies"],
        help="Loads, as requests in flight.  [default: 1,8,32]",
    ),
    click.option(
        "--requests-per-pass",
        type=click.IntRange(min=1),
        help="Prompts a pass.  [default: the whole part]",
    ),
    click.option(
        "--max-new-tokens",
        default=_TRAFFIC["max_new_tokens"],
        show_default=True,
        type=click.IntRange(min=1),
        help="Longest answer where the prompt file sets none.",
    ),
    click.option(
        "--temperature",
        default=_TRAFFIC["temperature"],
        show_default=True,
        type=float,
        help="Of sampling; 0 takes the most likely token.",
    ),
    click.option(
        "--seed",
        default=0,
        show_default=True,
        type=click.IntRange(min=0),
        help="Of the split of the prompts and of the server.",
    ),
    click.option("--slo", metavar="LIMITS", help="Like 'ttft_ms=200 tpot_ms=20'."),
    api_key_option,
    click.option(
        "--model", metavar="PATH", help="Of a configuration; or where a profile's model lies."
    ),
    click.option("--device", help="cuda, cpu, ...  [default: what is here]"),
    click.option("--dtype", default="auto", show_default=True, help="As SGLang names it."),
    click.option("--tp-size", default=1, show_default=True, type=int, help="GPUs for the target."),
    click.option("--max-running-requests", type=int, help="Admission limit."),
    click.option("--mem-fraction-static", type=float, help="Memory share."),
    click.option("--max-total-tokens", type=int, help="KV cache, in tokens."),
    click.option("--attention-backend", help="[default: each configuration's own best]"),
    click.option("--page-size", type=int, help="[default: each configuration's own best]"),
    click.option("--context-length", type=int, help="Longest prompt and answer, in tokens."),
    click.option(
        "--launch-timeout",
        default="10m",
        show_default=True,
        metavar="TIME",
        help="How long a server may take to be ready.",
    ),
    click.option(
        "--logs",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Keep the logs of launched servers here.",
    ),
    click.option(
        "--stall-timeout",
        default="2m",
        show_default=True,
        metavar="TIME",
        help="How long a server may send nothing in a pass.",
    ),
    click.option("--demo", is_flag=True, help="The demo model and prompts on this machine's CPU."),
    click.option(
        "-o", "--output", type=click.Path(path_type=Path), help="Keep the result as JSON here."
    ),
    json_option,
)


def measuring_options(function: F) -> F:
    """Give a command the options of all that is sent and launched."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def prepare(
    context: click.Context,
    texts: tuple[str, ...],
    options: dict[str, Any],
    note: Callable[[str], Any],
) -> tuple[tuple[Target, ...], Plan]:
    """Find out what is to be measured with what; nothing is launched or sent.

    Args:
        context: says which options were given.
        texts: what stands for the servers.
        options: all options of the command.
        note: told what takes time.

    Raises:
        AutospecError: whatever the user must put right.
    """
    from autospec.bench.plan import make_plan
    from autospec.bench.target import find_targets
    from autospec.tune.budget import parse_duration

    if options["demo"]:
        options = _demo_options(context, texts, options, note)
    if not options["prompts"]:
        raise click.UsageError("give --prompts FILE, or --demo")
    check_output(options["output"])
    slo = None if options["slo"] is None else Slo.parse(options["slo"])
    stall_timeout_s = parse_duration(options["stall_timeout"])
    plan = make_plan(
        Traffic(**_chosen(options, _TRAFFIC) | {"slo": slo, "stall_timeout_s": stall_timeout_s})
    )
    launch_timeout_s = parse_duration(options["launch_timeout"])
    settings = LaunchSettings(**{**_chosen(options, _LAUNCH), "launch_timeout_s": launch_timeout_s})
    key = read_api_key(options["api_key_env"])
    return find_targets(texts, settings, plan.traffic.concurrencies, key), plan


def check_output(path: Path | None) -> None:
    """Find out before the measuring that the result could not be kept.

    Raises:
        StorageError: it could not.
    """
    from autospec.schema import write_text

    if path is None:
        return
    if path.is_dir():
        raise click.UsageError(f"{path}: is a folder, must be the result's file")
    probe = path.with_name(f".{path.name}.probe")
    write_text(probe, "")
    probe.unlink()


def emit(result: Any, options: dict[str, Any], show: Callable[[Any], None]) -> None:
    """Keep a result where that was asked for, and print it as text or as JSON.

    Raises:
        StorageError: it cannot be kept.
    """
    from autospec.schema import dump, write_text

    document = dump(result)
    text = json.dumps({"schema": document.pop("schema"), **document}, indent=2)
    if options["output"] is not None:
        write_text(options["output"], text + "\n")
    if options["as_json"]:
        click.echo(text)
    else:
        show(result)


def this_command() -> str:
    """The command line as the user gave it."""
    return "autospec " + shlex.join(sys.argv[1:])


def _chosen(options: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _demo_options(
    context: click.Context,
    texts: tuple[str, ...],
    options: dict[str, Any],
    note: Callable[[str], Any],
) -> dict[str, Any]:
    from autospec import demo
    from autospec.bench.target import is_profile, is_url

    default = click.core.ParameterSource.DEFAULT
    given = {name for name in options if context.get_parameter_source(name) not in (None, default)}
    if given & {"prompts", "model", "device"}:
        raise click.UsageError("--demo brings its own model, prompts and device")
    defaults = _DEMO
    if not any(map(is_profile, texts)) and not all(map(is_url, texts)):
        defaults = _DEMO | _DEMO_SERVER
    return {
        **options,
        **{name: value for name, value in defaults.items() if name not in given},
        "model": str(demo.model_path(note)),
        "prompts": str(demo.prompts_path()),
    }
