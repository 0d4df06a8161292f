"""From a finished search and confirmation to a profile: the verdict and what to deploy. Pure."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from autospec.breakdown import Winner
from autospec.config import SpecConfig
from autospec.engine.args import server_args
from autospec.evidence import Failure, Point, Provenance, Target, WorkloadSummary
from autospec.measure.checks import unequal_limits
from autospec.measurement import Measurement
from autospec.metrics import Slo
from autospec.profile import Choice, Profile
from autospec.tune.objective import Goal, find_objective
from autospec.tuning import points
from autospec.tuning.confirm import Confirmation
from autospec.tuning.doubts import doubts
from autospec.tuning.prepare import Prepared
from autospec.tuning.verdict import Evidence, Pair, decisive_pair, judge, search_ratios
from autospec.tuning.winners import is_depth_of, schedule, winners

__all__ = ["conclude"]

#: Rows and lines that a profile keeps, so that a person can read it; the study has all of them.
_MOST_POINTS: Final = 24
_MOST_LINES: Final = 20
_MOST_WINNERS: Final = 12
_MOST_STOPPED: Final = 12


def conclude(prepared: Prepared, evidence: Evidence, provenance: Provenance) -> Profile:
    """Build the profile.

    Speculation is deployed only when it was confirmed to be better, and when its greedy answers
    are plain decoding's unless the request allows others.
    """
    request, outcome = prepared.request, evidence.outcome
    goal = find_objective(request.objective, request.slo)
    pair = decisive_pair(evidence, goal)
    verdict = judge(evidence, pair, goal, allow_lossy=request.allow_lossy)
    refused = pair is not None and pair.is_lossy and not request.allow_lossy
    tried = [item.measurement for item in islice(outcome.ranked, _MOST_POINTS)]
    confirmed = [pair.plain, pair.best] if pair and pair.part == "confirm" else []
    arms = [outcome.baseline, *tried, *confirmed]
    deployed = pair.best if pair and verdict.decision == "faster" and not refused else None
    choice = _choice(prepared, deployed or outcome.baseline)
    return Profile(
        target=Target(
            model=request.model,
            digest=prepared.target.digest,
            architecture=prepared.target.architecture,
            draft_digest=evidence.draft_digest,
            corpus_digest=evidence.corpus_digest,
        ),
        environment=prepared.environment,
        workload=_workload(prepared),
        verdict=verdict,
        choice=choice,
        noise=evidence.noise,
        lossless=pair.lossless if pair else None,
        baseline=_rows(outcome.baseline, pair, goal.slo),
        points=_candidate_rows(tried, evidence, goal),
        schedule=_schedule(evidence, None if refused or not pair else pair, goal),
        winners=_winners(evidence, choice.config, goal),
        stopped=evidence.stopped[:_MOST_STOPPED],
        step_times=points.step_times(arms)[:_MOST_POINTS],
        acceptance=points.acceptance([pair.best] if pair else []),
        failed=tuple(Failure(t.config, t.error or "?") for t in evidence.failed[:_MOST_LINES]),
        warnings=_warnings(arms, pair, evidence.confirmation),
        provenance=provenance,
    )


def _schedule(evidence: Evidence, pair: Pair | None, goal: Goal) -> dict[int, int]:
    """Depth of drafting by load; where the best may not be deployed, 0 everywhere."""
    outcome = evidence.outcome
    if pair is None:
        levels = search_ratios(outcome, evidence.floor)
        return dict.fromkeys(levels, 0)
    best = pair.best.config
    depths = [
        item.measurement
        for item in outcome.ranked
        if item.config == best or is_depth_of(item.config, best)
    ]
    rows = winners(outcome.baseline, depths, best, goal.figure, evidence.floor)
    return schedule(best, pair.ratios, rows)


def _winners(evidence: Evidence, choice: SpecConfig, goal: Goal) -> tuple[Winner, ...]:
    outcome = evidence.outcome
    measured = (item.measurement for item in outcome.ranked)
    rows = winners(outcome.baseline, measured, choice, goal.figure, evidence.floor)
    return rows[:_MOST_WINNERS]


def _rows(baseline: Measurement, pair: Pair | None, slo: Slo | None) -> tuple[Point, ...]:
    """Plain decoding's points."""
    held_out = pair is not None and pair.part == "confirm"
    confirmed = points.points(pair.plain, "confirm", slo=slo) if pair and held_out else ()
    return (*points.points(baseline, "tune", slo=slo), *confirmed)


def _candidate_rows(tried: list[Measurement], evidence: Evidence, goal: Goal) -> tuple[Point, ...]:
    """The candidates' points, best first, as far as a profile keeps them; the finalists' last."""
    baseline, confirmation = evidence.outcome.baseline, evidence.confirmation
    rows: list[Point] = []
    for candidate in tried:
        ratios = points.versus(candidate, baseline, "tune")
        found = points.points(candidate, "tune", ratios, slo=goal.slo)
        if len(rows) + len(found) > _MOST_POINTS and rows:
            break
        rows += found
    if confirmation is None or confirmation.plain is None:
        return tuple(rows)
    for finalist in confirmation.finalists:
        # A profile's rows compare throughputs, whatever was to be made large.
        ratios = dict(finalist.look.levels)
        if goal.name != "throughput":
            ratios = points.versus(finalist.measurement, confirmation.plain, "confirm")
        rows += points.points(finalist.measurement, "confirm", ratios, slo=goal.slo)
    return tuple(rows)


def _warnings(
    arms: list[Measurement], pair: Pair | None, confirmation: Confirmation | None
) -> tuple[str, ...]:
    limits = unequal_limits(pair.best.resolved, pair.plain.resolved) if pair else ()
    lost = confirmation.lost if confirmation else ()
    lines = (*limits, *lost, *doubts(arms))
    if len(lines) <= _MOST_LINES:
        return lines
    rest = len(lines) - _MOST_LINES + 1
    return (*lines[: _MOST_LINES - 1], f"{rest} more kinds of warnings are in the study")


def _choice(prepared: Prepared, arm: Measurement) -> Choice:
    arguments = server_args(prepared.deployment, arm.config)
    return Choice(
        config=arm.config,
        server_args={k: tuple(v) if isinstance(v, list) else v for k, v in arguments.items()},
        resolved=dict(arm.resolved),
    )


def _workload(prepared: Prepared) -> WorkloadSummary:
    parts, workload = prepared.parts, prepared.parts.workload
    classes: dict[str, int] = {}
    for prompt in workload.prompts:
        if prompt.label:
            classes[prompt.label] = classes.get(prompt.label, 0) + 1
    return WorkloadSummary(
        name=Path(workload.name).name,
        fingerprint=workload.fingerprint,
        prompts={part.name: len(part.prompts) for part in parts.all},
        classes=classes,
        concurrencies=prepared.request.concurrencies,
        temperature=prepared.request.temperature,
    )
