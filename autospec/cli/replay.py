"""``autospec replay``: what would have been, from records, without a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autospec.cli.options import json_option
from autospec.cli.replay_search import search_command

if TYPE_CHECKING:
    from autospec.control.costs import Costs
    from autospec.control.replay import Part, Result

__all__ = ["replay_command"]


@click.group("replay")
def replay_command() -> None:
    """Replay records without a server."""


replay_command.add_command(search_command)


@replay_command.command("policy")
@click.argument("trace", metavar="TRACE.jsonl", type=click.Path(path_type=Path))
@click.option(
    "--policy",
    "policy_name",
    metavar="NAME|PATH|MODULE:CLASS",
    help="A shipped policy, a file, or your own class.  [default: the profile's, or throughput]",
)
@click.option(
    "--profile",
    "profile_path",
    type=click.Path(path_type=Path),
    help="A profile, for the step times it holds.",
)
@click.option(
    "--costs",
    "costs_path",
    type=click.Path(path_type=Path),
    help='Step times as JSON: {"step_time_ms": {DEPTH: {BATCH_SIZE: MS}}}.',
)
@json_option
def policy_command(
    trace: Path,
    policy_name: str | None,
    profile_path: Path | None,
    costs_path: Path | None,
    *,
    as_json: bool,
) -> None:
    """Say what a policy would have made of a recorded trace.

    Simulated: tokens come from the trace, times from the table of step times.
    """
    from autospec.control.choose import policy_for
    from autospec.control.load import make_controller
    from autospec.control.replay import Ground, replay
    from autospec.control.trace import read_trace

    chosen = policy_for(profile_path, policy_name)
    ground = Ground(read_trace(trace), _costs(profile_path, costs_path))
    result = replay(ground, make_controller(chosen.policy, ground.setting))
    if as_json:
        click.echo(json.dumps({"policy": chosen.name, **result.to_json()}, indent=2))
    else:
        _print(chosen.name, result)
    if result.failed is not None:
        click.echo(f"the policy failed: {result.failed}", err=True)
        raise click.exceptions.Exit(1)


def _costs(profile_path: Path | None, costs_path: Path | None) -> Costs:
    from autospec.control.costs import costs_of_profile, load_costs
    from autospec.profile import load_profile

    if profile_path is not None and costs_path is None:
        return costs_of_profile(load_profile(profile_path), str(profile_path))
    if costs_path is not None and profile_path is None:
        return load_costs(costs_path)
    raise click.UsageError("give step times with one of --profile and --costs")


def _print(policy_name: str, result: Result) -> None:
    whole = result.whole
    click.echo(
        f"{policy_name}: {whole.throughput:.1f} tokens/s over {whole.steps} steps, simulated"
    )
    heads = ("vs plain", "vs fixed", "vs oracle", "switches", "probing")
    click.echo(f"{'':20}" + "".join(f"{head:>11}" for head in heads))
    for name, part in [("all", whole), *((part.phase or "", part) for part in result.phases)]:
        click.echo(f"{name[:20]:20}{_row(part)}")
    click.echo(f"best fixed depth {whole.best_fixed_depth}")
    for word, steps in (("fell back", whole.fallbacks), ("returned", whole.recoveries)):
        if steps:
            more = f" and {len(steps) - 10} more" if len(steps) > 10 else ""
            click.echo(f"{word} at steps {', '.join(map(str, steps[:10]))}{more}")


def _row(part: Part) -> str:
    ratios = "".join(
        f"{ratio:>10.3f}x" for ratio in (part.vs_plain, part.vs_best_fixed, part.vs_oracle)
    )
    return f"{ratios}{part.switches:>11}{part.probe_share:>11.2%}"
