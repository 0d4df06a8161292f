"""``autospec bench``: the figures of one server."""

from __future__ import annotations

from typing import Any

import click

from autospec.cli.measuring import emit, measuring_options, prepare, this_command
from autospec.cli.options import RATES, force_option

__all__ = ["bench_command"]


@click.command("bench")
@click.argument("target", required=False)
@click.argument("extra", metavar="[-- SGLANG FLAGS]", nargs=-1, type=click.UNPROCESSED)
@click.option("--url", metavar="URL", help="A server that runs already, whoever started it.")
@click.option("--request-rate", "request_rates", type=RATES, help="Further loads, as requests/s.")
@click.option(
    "--repeats",
    default=3,
    show_default=True,
    type=click.IntRange(min=3),
    help="Passes at each load.",
)
@measuring_options
@force_option
@click.pass_context
def bench_command(context: click.Context, /, **options: Any) -> None:
    """Measure one server: throughput, latencies and acceptance at each load.

    TARGET is a profile, or a configuration of the model that --model names.

    \b
    autospec bench llama.yaml --prompts traffic.jsonl
    autospec bench 'NGRAM tokens=4 breadth=4' --model models/m --prompts p.txt
    autospec bench --url http://127.0.0.1:30000 --prompts traffic.jsonl
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec.bench.single import run_bench
    from autospec.report.bench import BenchView, print_bench

    text = _target(options)
    if options["request_rates"] and not _given(context, "concurrencies"):
        options["concurrencies"] = ()
    options["request_rates"] = options["request_rates"] or ()
    view = BenchView()
    (target,), plan = prepare(context, (text,), options, view.note)
    result = run_bench(target, plan, options["repeats"], view, this_command())
    emit(result, options, print_bench)


def _target(options: dict[str, Any]) -> str:
    """What is to be measured; the first pass-through flag may have taken its place."""
    text, url = options["target"], options["url"]
    if text is not None and text.startswith("-"):
        options["extra"], text = (text, *options["extra"]), None
    if (text is None) == (url is None):
        raise click.UsageError("give one of TARGET (a profile or a configuration) and --url")
    return str(url if text is None else text)


def _given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
