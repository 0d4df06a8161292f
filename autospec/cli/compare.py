"""``autospec compare``: two servers on the same prompts."""

from __future__ import annotations

from typing import Any

import click

from autospec.cli.measuring import check_output, emit, measuring_options, prepare, this_command

__all__ = ["compare_command"]


@click.command("compare")
@click.argument("a")
@click.argument("b")
@click.argument("extra", metavar="[-- SGLANG FLAGS]", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--min", "least", default=5, show_default=True, type=int, help="Passes of each at each load."
)
@click.option(
    "--max", "most", default=20, show_default=True, type=int, help="Passes after which it ends."
)
@measuring_options
@click.option("--force", is_flag=True, help="Compare though models, limits or machines differ.")
@click.pass_context
def compare_command(context: click.Context, /, **options: Any) -> None:
    """Compare the throughput of A with that of B, in turns, until the verdict is clear.

    Each is a profile, an address, a configuration, or a result that bench -o kept.

    \b
    autospec compare http://127.0.0.1:30000 http://127.0.0.1:30001 --prompts p.txt
    autospec compare llama.yaml PLAIN --prompts traffic.jsonl
    autospec compare before.json after.json
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    from autospec.bench.files import compare_results, is_result, read_result
    from autospec.bench.versus import Repeats, run_compare
    from autospec.report.bench import BenchView, print_compare

    view, texts = BenchView(), (options["a"], options["b"])
    if any(map(is_result, texts)):
        if not all(map(is_result, texts)):
            raise click.UsageError("a result of bench -o can be compared with another one only")
        check_output(options["output"])
        results = (read_result(texts[0]), read_result(texts[1]))
        result = compare_results(*results, this_command(), force=options["force"])
    else:
        repeats = Repeats(options["least"], options["most"])
        (a, b), plan = prepare(context, texts, options, view.note)
        result = run_compare((a, b), plan, repeats, view, this_command(), force=options["force"])
    emit(result, options, print_compare)
