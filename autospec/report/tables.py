"""Tables of measured figures, readable at 80 columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rich import box
from rich.table import Table

from autospec.config import SpecConfig
from autospec.control.choose import policy_for, sibling_policy
from autospec.errors import SchemaError
from autospec.evidence import Failure, Interval, Point
from autospec.fidelity import Lossless
from autospec.profile import Profile
from autospec.tune.study import Trial

__all__ = [
    "acceptance_table",
    "evidence_lines",
    "failures_text",
    "lossless_text",
    "points_table",
    "policy_line",
    "profile_lines",
    "rate",
    "ratio_text",
    "study_table",
    "times",
]


#: Objective -> heading and figure of one more column, where throughput is not what it is about.
_EXTRA: Final[dict[str, tuple[str, Callable[[Point], str]]]] = {
    "latency": ("tpot ms", lambda point: rate(point.tpot_ms.p50) if point.tpot_ms else "-"),
    "goodput": ("goodput", lambda point: f"{point.request_goodput or 0.0:.3g}"),
}


def points_table(
    points: Sequence[Point], title: str | None = None, objective: str = "throughput"
) -> Table:
    """One row a configuration and load: throughput with its spread, acceptance, against plain.

    Median ``tpot_ms`` stands beside them where the objective is latency, requests/s within the SLO
    where it is goodput. Plain decoding comes first, then the configurations from best to worst.
    The title says how many passes each row rests on.
    """
    if title is not None:
        title = f"{title}, {_passes(points)} passes a row"
    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, padding=(0, 1, 0, 0)
    )
    table.add_column("configuration", overflow="fold")
    extra = _EXTRA.get(objective)
    headings = ["load", "tok/s", "spread", "accept", "vs plain", *([extra[0]] if extra else [])]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    last: SpecConfig | None = None
    for point in _ordered(points):
        table.add_row(
            "" if point.config == last else point.config.label,
            str(point.concurrency),
            rate(point.output_throughput.value),
            f"{rate(point.output_throughput.low)}-{rate(point.output_throughput.high)}",
            "-" if point.accept_length is None else f"{point.accept_length:.2f}",
            _against_plain(point),
            *([extra[1](point)] if extra else []),
        )
        last = point.config
    return table


def failures_text(failures: Iterable[Failure]) -> list[str]:
    """One line for each configuration that did not run."""
    return [f"{failure.config.label}: did not run ({failure.error})" for failure in failures]


def acceptance_table(profile: Profile) -> Table | None:
    """Accept length and acceptance by position of the best configuration, a row a class."""
    rows = [row for row in profile.acceptance if row.config == profile.verdict.best]
    if not rows:
        return None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("class")
    table.add_column("accept", justify="right")
    table.add_column("share of steps with the first 1, 2, ... drafts right", overflow="fold")
    for row in rows:
        shares = " ".join(f"{share:.2f}" for share in row.accept_rate_per_pos)
        table.add_row(row.label or "all", f"{row.accept_length:.2f}", shares)
    return table


def study_table(trials: Iterable[Trial]) -> Table:
    """One row a trial, in the order in which they began."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("trial", justify="right")
    table.add_column("configuration", overflow="fold")
    for heading in ("part", "state"):
        table.add_column(heading, no_wrap=True)
    table.add_column("min", justify="right")
    table.add_column("vs plain", justify="right", no_wrap=True)
    for trial in trials:
        table.add_row(
            str(trial.id),
            trial.config.label,
            trial.kind,
            trial.state,
            "-" if trial.seconds is None else f"{trial.seconds / 60:.1f}",
            "-" if trial.value is None else times(trial.value),
        )
    return table


def profile_lines(profile: Profile) -> list[str]:
    """What the profile says, as sentences."""
    environment, target = profile.environment, profile.target
    machine = f"{environment.accelerator_count} x {environment.accelerator}"
    parts = ", ".join(f"{count} {part}" for part, count in profile.workload.prompts.items())
    lines = [
        f"model     {target.model} ({target.architecture}, {environment.dtype})",
        f"measured  {profile.provenance.created}, sglang {environment.sglang}",
        f"machine   {machine} ({environment.device})",
        f"workload  {profile.workload.name}: {parts} prompts",
        f"verdict   {profile.verdict.decision}: {profile.verdict.reason}",
        f"deploys   {profile.choice.config}",
    ]
    return [*lines, *evidence_lines(profile)]


def evidence_lines(profile: Profile) -> list[str]:
    """What stands beside a verdict, a line each: noise, answers, unequal settings, warnings."""
    lines: list[str] = []
    if profile.noise is not None:
        lines.append(f"noise     {profile.noise}")
    if profile.lossless is not None:
        lines.append(f"lossless  {lossless_text(profile.lossless)}")
    lines += [f"differs   {line} (best / plain)" for line in profile.verdict.differs_from_plain]
    return lines + [f"warning   {line}" for line in profile.warnings]


def policy_line(profile: Path) -> str:
    """Which runtime policy goes with a profile's file."""
    try:
        chosen = policy_for(profile)
    except SchemaError as error:
        return f"policy    {error}"
    if chosen.origin == "default":
        return f"policy    {chosen.name}, the default: there is no {sibling_policy(profile)}"
    return f"policy    {chosen.name}: {chosen.policy.kind}"


def lossless_text(lossless: Lossless) -> str:
    """How many greedy answers are plain decoding's, and how many of its own are."""
    ours, control = lossless.candidate, lossless.control
    text = f"{lossless.decision}: {ours.identical} of {ours.prompts} greedy answers the same"
    if ours.near_ties:
        text += f", {ours.near_ties} part at a near-tie"
    if ours.wide:
        text += f", {ours.wide} elsewhere"
    return f"{text}; between two launches of plain decoding {control.identical}"


def ratio_text(ratio: Interval | None) -> str:
    """A ratio and its interval; one pass alone has none, and nothing has no text."""
    if ratio is None:
        return ""
    return str(ratio) if math.isfinite(ratio.high) else f"{ratio.value:.2f}x, one pass"


def rate(tokens_per_s: float) -> str:
    """A throughput in as many digits as it deserves."""
    return f"{tokens_per_s:.1f}" if tokens_per_s < 100 else f"{tokens_per_s:.0f}"


def times(log_ratio: float) -> str:
    """A logarithm of a ratio as a person says it: ``1.40x``."""
    return f"{math.exp(log_ratio):.2f}x"


def _ordered(points: Sequence[Point]) -> list[Point]:
    best: dict[SpecConfig, float] = {}
    for point in points:
        ratio = point.vs_plain.value if point.vs_plain else 1.0
        best[point.config] = max(best.get(point.config, 0.0), ratio)
    return sorted(
        points,
        key=lambda p: (not p.config.is_plain, -best[p.config], p.config, p.concurrency),
    )


def _passes(points: Sequence[Point]) -> str:
    least, most = (find(point.repeats for point in points) for find in (min, max))
    return str(least) if least == most else f"{least} to {most}"


def _against_plain(point: Point) -> str:
    ratio: Interval | None = point.vs_plain
    return "1.00x" if ratio is None else f"{ratio.value:.2f}x"
