"""From a finished search and confirmation to a profile: the verdict and what to deploy. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

from autospec.config import SpecConfig
from autospec.engine.args import differences, server_args
from autospec.evidence import Failure, Noise, Point, Provenance, Target, WorkloadSummary
from autospec.fidelity import Lossless
from autospec.measure import stats
from autospec.measure.checks import unequal_limits
from autospec.measurement import Measurement
from autospec.profile import Choice, Profile, Verdict
from autospec.tune.search import SearchOutcome
from autospec.tune.study import Trial
from autospec.tuning import points
from autospec.tuning.confirm import Confirmation
from autospec.tuning.doubts import doubts
from autospec.tuning.prepare import Prepared

__all__ = ["Evidence", "conclude", "needs_confirmation"]

#: Rows and lines that a profile keeps, so that a person can read it; the study has all of them.
_MOST_POINTS: Final = 24
_MOST_LINES: Final = 20


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a profile is concluded from.

    Attributes:
        outcome: of the search.
        confirmation: of its best candidate, if it was worth confirming.
        failed: candidates that did not run.
        draft_digest: of the best candidate's draft model, if it has one.
        noise: what two launches of plain decoding showed, if there were two.
    """

    outcome: SearchOutcome
    confirmation: Confirmation | None
    failed: tuple[Trial, ...] = ()
    draft_digest: str | None = None
    noise: Noise | None = None


@dataclass(frozen=True, slots=True)
class _Pair:
    """The best arm and plain decoding on the part on which the two decide the verdict."""

    best: Measurement
    plain: Measurement
    part: points.Part
    ratios: dict[int, stats.Ratio]


def needs_confirmation(outcome: SearchOutcome, noise: Noise | None = None) -> bool:
    """Whether the best candidate may be faster than plain decoding at all.

    A best candidate that is clearly slower on the prompts it was chosen on, and by more than this
    machine's noise, needs no further look: held-out prompts would favour it even less.
    """
    ratios = _search_ratios(outcome, noise)
    return bool(ratios) and stats.combine(list(ratios.values())).high >= 1


def _search_ratios(outcome: SearchOutcome, noise: Noise | None) -> dict[int, stats.Ratio]:
    """The best candidate against plain decoding at each load; nothing without a candidate."""
    if not outcome.ranked:
        return {}
    best = outcome.ranked[0].measurement
    floor = noise.floor if noise else 0.0
    return points.versus(best, outcome.baseline, "tune", noise_floor=floor)


def conclude(prepared: Prepared, evidence: Evidence, provenance: Provenance) -> Profile:
    """Build the profile.

    Speculation is deployed only when it was confirmed to be faster, and when its greedy answers
    are plain decoding's unless the request allows others.
    """
    outcome, confirmation = evidence.outcome, evidence.confirmation
    pair = _decisive_pair(evidence)
    verdict = replace(
        _verdict(outcome.ranked[0].config if outcome.ranked else None, pair, evidence),
        differs_from_plain=differences(pair.best.resolved, pair.plain.resolved) if pair else (),
    )
    lossless = confirmation.lossless if confirmation else None
    lossy = lossless is not None and lossless.decision == "differs"
    refused = lossy and not prepared.request.allow_lossy
    if lossless is not None and lossy and verdict.decision == "faster":
        verdict = replace(verdict, reason=f"{verdict.reason}; {_lossy(lossless, refused=refused)}")
    tried = [item.measurement for item in islice(outcome.ranked, _MOST_POINTS)]
    confirmed = [pair.plain, pair.best] if pair and pair.part == "confirm" else []
    arms = [outcome.baseline, *tried, *confirmed]
    deployed = pair.best if pair and verdict.decision == "faster" and not refused else None
    return Profile(
        target=Target(
            model=prepared.request.model,
            digest=prepared.target.digest,
            architecture=prepared.target.architecture,
            draft_digest=evidence.draft_digest,
        ),
        environment=prepared.environment,
        workload=_workload(prepared),
        verdict=verdict,
        choice=_choice(prepared, deployed or outcome.baseline),
        noise=evidence.noise,
        lossless=lossless,
        baseline=_rows(outcome.baseline, pair),
        points=_candidate_rows(tried, outcome.baseline, pair),
        schedule=points.schedule(None if refused else verdict.best, pair.ratios if pair else {}),
        step_times=points.step_times(arms)[:_MOST_POINTS],
        acceptance=points.acceptance([pair.best] if pair else []),
        failed=tuple(Failure(t.config, t.error or "?") for t in evidence.failed[:_MOST_LINES]),
        warnings=_warnings(arms, pair),
        provenance=provenance,
    )


def _decisive_pair(evidence: Evidence) -> _Pair | None:
    confirmation, outcome = evidence.confirmation, evidence.outcome
    if confirmation and confirmation.finalist and confirmation.plain and confirmation.look:
        ratios = dict(confirmation.look.levels)
        return _Pair(confirmation.finalist, confirmation.plain, "confirm", ratios)
    ratios = _search_ratios(outcome, evidence.noise)
    if ratios:
        return _Pair(outcome.ranked[0].measurement, outcome.baseline, "tune", ratios)
    return None


def _verdict(best: SpecConfig | None, pair: _Pair | None, evidence: Evidence) -> Verdict:
    confirmation = evidence.confirmation
    if best is None or pair is None:
        return Verdict("inconclusive", "no candidate ran, so plain decoding is deployed", "tune")
    if confirmation is None or confirmation.look is None:
        overall = stats.combine(list(pair.ratios.values()))
        shown = points.interval(overall)
        if confirmation is not None:
            return Verdict("inconclusive", confirmation.failure, "tune", best, shown)
        reason = f"the best candidate, {best.label}, makes {shown} of plain decoding's tokens/s"
        return Verdict(stats.verdict(overall), reason, "tune", best, shown)
    look = confirmation.look
    shown = points.interval(look.ratio)
    reason = (
        f"{best.label} makes {shown} of plain decoding's tokens/s on held-out prompts, "
        f"{look.reason}"
    )
    if confirmation.unfinished:
        reason += f"; {confirmation.unfinished}"
    if look.decision != "faster":
        reason += "; plain decoding is deployed"
    return Verdict(look.decision, reason, "confirm", best, shown)


def _lossy(lossless: Lossless, *, refused: bool) -> str:
    """That the greedy answers differ, and what follows."""
    ours, control = lossless.candidate, lossless.control
    consequence = "so plain decoding is deployed; --allow-lossy would deploy it"
    return (
        f"{ours.wide} of {ours.prompts} greedy answers differ from plain decoding's beyond "
        f"near-ties, {control.wide} of {control.prompts} between two launches of plain decoding, "
        f"{consequence if refused else 'deployed by --allow-lossy'}"
    )


def _rows(baseline: Measurement, pair: _Pair | None) -> tuple[Point, ...]:
    """Plain decoding's points."""
    confirmed = points.points(pair.plain, "confirm") if pair and pair.part == "confirm" else ()
    return (*points.points(baseline, "tune"), *confirmed)


def _candidate_rows(
    tried: list[Measurement], baseline: Measurement, pair: _Pair | None
) -> tuple[Point, ...]:
    """The candidates' points, best first, as far as a profile keeps them; the finalist's last."""
    rows: list[Point] = []
    for candidate in tried:
        found = points.points(candidate, "tune", points.versus(candidate, baseline, "tune"))
        if len(rows) + len(found) > _MOST_POINTS and rows:
            break
        rows += found
    if pair and pair.part == "confirm":
        rows += points.points(pair.best, "confirm", pair.ratios)
    return tuple(rows)


def _warnings(arms: list[Measurement], pair: _Pair | None) -> tuple[str, ...]:
    limits = unequal_limits(pair.best.resolved, pair.plain.resolved) if pair else ()
    lines = (*limits, *doubts(arms))
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
        prompts={
            part.name: len(part.prompts) for part in (parts.warmup, parts.tune, parts.confirm)
        },
        classes=classes,
        concurrencies=prepared.request.concurrencies,
        temperature=prepared.request.temperature,
    )
