"""What one choice for everything costs: the best for each load and class, the early losers."""

from __future__ import annotations

from rich import box
from rich.table import Table

from autospec.breakdown import Winner
from autospec.profile import Profile

__all__ = ["schedule_line", "stopped_lines", "winners_table"]

_TITLE = "Best for each load and class alone, on the search prompts"


def winners_table(profile: Profile) -> Table | None:
    """A row a load and a class: the best there, and what the deployed one gives away; or nothing.

    Where a profile has no classes and the deployed configuration is the best at every load, there
    is nothing to say.
    """
    rows = profile.winners
    deployed = profile.choice.config
    if all(row.config == deployed and row.label is None for row in rows):
        return None
    table = Table(
        box=box.SIMPLE_HEAD,
        title=_TITLE,
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("for", overflow="fold", max_width=16)
    table.add_column("best", overflow="fold")
    for heading in ("accept", "vs plain", "deployed", "one for all costs"):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            row.part,
            "as deployed" if row.config == deployed else row.config.label,
            "-" if row.accept_length is None else f"{row.accept_length:.2f}",
            f"{row.vs_plain.value:.2f}x",
            f"{row.choice_vs_plain.value:.2f}x",
            "-" if row.config == deployed else _cost(row),
        )
    return table


def schedule_line(profile: Profile) -> str:
    """Which depth is best at which load, where the deployed one is not best at all; or nothing."""
    if profile.choice.config.is_plain or len(set(profile.schedule.values())) < 2:
        return ""
    steps = (f"{depth or 'plain'} at {level}" for level, depth in sorted(profile.schedule.items()))
    return f"schedule  depth by concurrency: {', '.join(steps)}"


def stopped_lines(profile: Profile) -> list[str]:
    """A line for each candidate that was stopped early, with how far it came."""
    return [
        f"{row.config.label}: stopped after {_passes(row.repeats)}, {row.vs_plain} of plain"
        for row in profile.stopped
    ]


def _passes(repeats: int) -> str:
    return f"{repeats} {'pass' if repeats == 1 else 'passes'} a load"


def _cost(row: Winner) -> str:
    """The share of the best one's figure that the deployed one does not reach."""
    ends = (row.vs_choice.value, row.vs_choice.low, row.vs_choice.high)
    value, low, high = (f"{1 - 1 / end:.0%}" for end in ends)
    return f"{value} ({low}-{high})"
