"""From a finished search and confirmation to a profile: the verdict and what to deploy. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from autospec.config import SpecConfig
from autospec.engine.args import differences, server_args
from autospec.evidence import Failure, Provenance, Target, WorkloadSummary
from autospec.measure import stats
from autospec.measurement import Measurement
from autospec.profile import Choice, Profile, Verdict
from autospec.tune.search import SearchOutcome
from autospec.tune.study import Trial
from autospec.tuning import points
from autospec.tuning.confirm import Confirmation
from autospec.tuning.prepare import Prepared

__all__ = ["Evidence", "conclude", "needs_confirmation"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a profile is concluded from.

    Attributes:
        outcome: of the search.
        confirmation: of its best candidate, if it was worth confirming.
        failed: candidates that did not run.
        draft_digest: of the best candidate's draft model, if it has one.
    """

    outcome: SearchOutcome
    confirmation: Confirmation | None
    failed: tuple[Trial, ...] = ()
    draft_digest: str | None = None


def needs_confirmation(outcome: SearchOutcome) -> bool:
    """Whether the best candidate may be faster than plain decoding at all.

    A best candidate that is clearly slower on the prompts it was chosen on needs no further look:
    held-out prompts would favour it even less.
    """
    if not outcome.ranked:
        return False
    best = outcome.ranked[0].measurement
    ratios = points.versus(best, outcome.baseline, "tune")
    return stats.combine(list(ratios.values())).high >= 1


def conclude(prepared: Prepared, evidence: Evidence, provenance: Provenance) -> Profile:
    """Build the profile; speculation is deployed only when it was confirmed to be faster."""
    outcome, confirmation = evidence.outcome, evidence.confirmation
    best = outcome.ranked[0] if outcome.ranked else None
    pair = _decisive_pair(evidence)
    ratios = points.versus(*pair) if pair else {}
    verdict = replace(
        _verdict(best.config if best else None, ratios, confirmation),
        differs_from_plain=differences(pair[0].resolved, pair[1].resolved) if pair else (),
    )
    tried = [ranked.measurement for ranked in outcome.ranked]
    rows = [row for m in tried for row in points.points(m, "tune", outcome.baseline)]
    baseline = list(points.points(outcome.baseline, "tune"))
    if pair and pair[2] == "confirm":
        finalist, plain, part = pair
        rows += points.points(finalist, part, plain)
        baseline += points.points(plain, part)
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
        choice=_choice(prepared, verdict, outcome.baseline, pair[0] if pair else None),
        baseline=tuple(baseline),
        points=tuple(rows),
        schedule=points.schedule(verdict.best, ratios),
        acceptance=points.acceptance([pair[0]] if pair else []),
        failed=tuple(Failure(t.config, t.error or "unknown") for t in evidence.failed),
        provenance=provenance,
    )


def _decisive_pair(
    evidence: Evidence,
) -> tuple[Measurement, Measurement, points.Part] | None:
    """The best arm, plain decoding, and the part on which the two decide the verdict."""
    confirmation, outcome = evidence.confirmation, evidence.outcome
    if confirmation and confirmation.finalist and confirmation.plain:
        return confirmation.finalist, confirmation.plain, "confirm"
    if outcome.ranked:
        return outcome.ranked[0].measurement, outcome.baseline, "tune"
    return None


def _verdict(
    best: SpecConfig | None, ratios: dict[int, stats.Ratio], confirmation: Confirmation | None
) -> Verdict:
    if best is None:
        return Verdict("inconclusive", "no candidate ran, so plain decoding is deployed", "tune")
    overall = stats.combine(list(ratios.values()))
    shown = points.interval(overall)
    if confirmation is None:
        reason = f"the best candidate, {best.label}, makes {shown} of plain decoding's tokens/s"
        return Verdict(stats.verdict(overall), reason, "tune", best, shown)
    if confirmation.failure:
        return Verdict("inconclusive", confirmation.failure, "tune", best, shown)
    decision = stats.verdict(overall)
    reason = f"{best.label} makes {shown} of plain decoding's tokens/s on held-out prompts"
    if decision != "faster":
        reason += "; plain decoding is deployed"
    return Verdict(decision, reason, "confirm", best, shown)


def _choice(
    prepared: Prepared, verdict: Verdict, baseline: Measurement, best: Measurement | None
) -> Choice:
    arm = best if best is not None and verdict.decision == "faster" else baseline
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
