"""``autospec replay search``: how a sampler would have searched a table whose answer is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from autospec.cli.options import json_option

if TYPE_CHECKING:
    from autospec.tune.problems import Outcome, Problem

__all__ = ["search_command"]


@click.command("search")
@click.argument("table", metavar="TABLE")
@click.option(
    "--sampler",
    default="structured",
    show_default=True,
    help="structured, gp, random, grid.",
)
@click.option("--trials", type=int, help="Arms to try at most, plain decoding among them.")
@click.option("--fraction", type=float, help="The same as a share of the arms.")
@click.option(
    "--seeds",
    default=20,
    show_default=True,
    type=click.IntRange(min=1),
    help="Searches of each problem, seeds 0, 1, ...",
)
@click.option("--per-problem", is_flag=True, help="The chosen and the best arm of each search.")
@json_option
def search_command(
    table: str,
    sampler: str,
    trials: int | None,
    fraction: float | None,
    seeds: int,
    *,
    per_problem: bool,
    as_json: bool,
) -> None:
    """Search a TABLE whose answer is known, and say how far from it the search ends.

    TABLE is a CSV file with the columns target, method, dataset, n_draft, baseline_tok_s and tok_s,
    a recorded grid (JSON lines), or simulated: synthetic:SEED or synthetic:FIRST-LAST for worlds,
    synthetic-tables:FIRST-LAST for tables such as are published. Give one of --trials and
    --fraction; a sampler may stop earlier.
    """
    from autospec.tune.problems import num_trials, replay, summarize
    from autospec.tune.samplers import make_sampler
    from autospec.tune.tables import read_problems

    if (trials is None) == (fraction is None):
        raise click.UsageError("give one of --trials and --fraction")
    make_sampler(sampler, (), 0)
    problems = read_problems(table)
    allowed = [num_trials(problem, trials, fraction) for problem in problems]
    outcomes = [
        replay(problem, sampler, most, seed)
        for problem, most in zip(problems, allowed, strict=True)
        for seed in range(seeds)
    ]
    figures = summarize(outcomes)
    if as_json:
        result: dict[str, object] = {"table": table, "sampler": sampler, **figures}
        if per_problem:
            result["per_problem"] = [_row(outcome) for outcome in outcomes]
        click.echo(json.dumps(result, indent=2))
        return
    _print(f"{sampler} on {table}", figures)
    if per_problem:
        _print_problems(problems, outcomes)


def _row(outcome: Outcome) -> dict[str, object]:
    problem = outcome.problem
    return {
        "problem": problem.name,
        "seed": outcome.seed,
        "arms": len(problem.truth),
        "trials": outcome.trials,
        "chosen": problem.label(outcome.chosen),
        "chosen_tok_s": problem.truth[outcome.chosen],
        "best": problem.label(problem.best),
        "best_tok_s": problem.truth[problem.best],
        "regret": outcome.regret,
        "vs_plain": outcome.vs_plain,
        "asked": [{"arm": problem.label(arm), "reason": reason} for arm, reason in outcome.asked],
    }


def _print(title: str, figures: dict[str, float | int]) -> None:
    click.echo(_cut(title, 80))
    click.echo(
        f"  {figures['problems']} problems, {figures['seeds']} seeds; "
        f"{figures['trials_mean']:.1f} of {figures['arms_mean']:.1f} arms tried"
    )
    click.echo(f"  within 2 % of the best   {figures['within_2pct']:>8.1%}")
    click.echo(f"  mean regret              {figures['mean_regret']:>8.2%}")
    click.echo(f"  largest regret           {figures['max_regret']:>8.2%}")
    click.echo(f"  slowest choice           {figures['least_vs_plain']:>7.2f}x of plain decoding")


def _print_problems(problems: Sequence[Problem], outcomes: Sequence[Outcome]) -> None:
    """One line a problem: its best arm, and what was chosen how often."""
    click.echo(f"\n{'problem':28} {'best':20} {'chosen most often':20} {'regret':>8}")
    for problem in problems:
        mine = [outcome for outcome in outcomes if outcome.problem is problem]
        labels = [problem.label(outcome.chosen) for outcome in mine]
        usual = max(sorted(set(labels)), key=labels.count)
        regret = sum(outcome.regret for outcome in mine) / len(mine)
        cells = (_cut(problem.name, 28), _cut(problem.label(problem.best), 20), _cut(usual, 20))
        click.echo(f"{cells[0]:28} {cells[1]:20} {cells[2]:20} {regret:>8.2%}")


def _cut(text: str, width: int) -> str:
    """The end of a name tells it from others."""
    return text if len(text) <= width else "~" + text[1 - width :]
