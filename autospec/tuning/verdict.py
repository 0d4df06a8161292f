"""Whether the best configuration beats plain decoding, and on what that rests. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from autospec.breakdown import Stopped
from autospec.engine.args import differences
from autospec.evidence import Noise
from autospec.fidelity import Lossless
from autospec.measure import stats
from autospec.measurement import Measurement
from autospec.profile import Verdict
from autospec.tune.objective import Figure, Goal, throughput
from autospec.tune.search import SearchOutcome
from autospec.tune.study import Trial
from autospec.tuning import points
from autospec.tuning.confirm import Confirmation

__all__ = ["Evidence", "Pair", "decisive_pair", "judge", "needs_confirmation", "search_ratios"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a profile is concluded from.

    Attributes:
        outcome: of the search.
        confirmation: of its best candidates, if one was worth confirming.
        failed: candidates that did not run.
        draft_digest: of the best candidate's draft model, if it has one.
        corpus_digest: of the best candidate's n-gram corpus, if it has one.
        noise: what two launches of plain decoding showed, if there were two.
        stopped: candidates that were stopped early, best first.
    """

    outcome: SearchOutcome
    confirmation: Confirmation | None
    failed: tuple[Trial, ...] = ()
    draft_digest: str | None = None
    corpus_digest: str | None = None
    noise: Noise | None = None
    stopped: tuple[Stopped, ...] = ()

    @property
    def floor(self) -> float:
        """Absolute log ratio by which two launches of one configuration may differ."""
        return self.noise.floor if self.noise else 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """The best arm and plain decoding on the part on which the two decide the verdict.

    Attributes:
        best: the best configuration.
        plain: plain decoding.
        part: the prompts.
        ratios: of the objective's figure at each load.
        lossless: whether the greedy answers are plain decoding's, where that was looked at.
    """

    best: Measurement
    plain: Measurement
    part: points.Part
    ratios: Mapping[int, stats.Ratio]
    lossless: Lossless | None = None

    @property
    def is_lossy(self) -> bool:
        """Whether the best arm's greedy answers are known to be others."""
        return self.lossless is not None and self.lossless.decision == "differs"


def needs_confirmation(
    outcome: SearchOutcome, noise: Noise | None = None, figure: Figure = throughput
) -> bool:
    """Whether the best candidate may be better than plain decoding at all.

    A best candidate that is clearly worse on the prompts it was chosen on, and by more than this
    machine's noise, needs no further look: held-out prompts would favour it even less.
    """
    ratios = search_ratios(outcome, noise.floor if noise else 0.0, figure)
    return bool(ratios) and stats.combine(list(ratios.values())).high >= 1


def search_ratios(
    outcome: SearchOutcome, noise_floor: float, figure: Figure = throughput
) -> dict[int, stats.Ratio]:
    """The best candidate against plain decoding at each load; nothing without a candidate."""
    if not outcome.ranked:
        return {}
    best = outcome.ranked[0].measurement
    return points.versus(best, outcome.baseline, "tune", noise_floor=noise_floor, figure=figure)


def decisive_pair(evidence: Evidence, goal: Goal) -> Pair | None:
    """Both arms on held-out prompts if they were confirmed, else on those of the search."""
    confirmation, outcome = evidence.confirmation, evidence.outcome
    if confirmation and confirmation.best and confirmation.plain:
        best = confirmation.best
        ratios = dict(best.look.levels)
        return Pair(best.measurement, confirmation.plain, "confirm", ratios, best.lossless)
    ratios = search_ratios(outcome, evidence.floor, goal.figure)
    if ratios:
        return Pair(outcome.ranked[0].measurement, outcome.baseline, "tune", ratios)
    return None


def judge(evidence: Evidence, pair: Pair | None, goal: Goal, *, allow_lossy: bool) -> Verdict:
    """The verdict, with the objective it is about."""
    verdict = replace(
        _of_pair(evidence, pair, goal) if pair else _without_pair(evidence, goal),
        objective=goal.name,
        slo=str(goal.slo) if goal.slo else None,
        differs_from_plain=differences(pair.best.resolved, pair.plain.resolved) if pair else (),
    )
    lossless = pair.lossless if pair else None
    if lossless is None or lossless.decision != "differs" or verdict.decision != "faster":
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; {_lossy(lossless, refused=not allow_lossy)}")


def _of_pair(evidence: Evidence, pair: Pair, goal: Goal) -> Verdict:
    confirmation, best = evidence.confirmation, pair.best.config
    if confirmation is None or confirmation.best is None:
        overall = stats.combine(list(pair.ratios.values()))
        shown = points.interval(overall)
        if confirmation is not None:
            return Verdict("inconclusive", confirmation.failure, "tune", best, shown)
        which = (
            "the best candidate that was not stopped" if evidence.stopped else "the best candidate"
        )
        reason = f"{which}, {best.label}, makes {shown} of plain decoding's "
        return Verdict(stats.verdict(overall), reason + goal.quantity, "tune", best, shown)
    look = confirmation.best.look
    shown = points.interval(look.ratio)
    reason = (
        f"{best.label} makes {shown} of plain decoding's {goal.quantity} on held-out prompts, "
        f"{look.reason}"
    )
    if len(confirmation.finalists) > 1:
        reason += f", the best of {len(confirmation.finalists)} finalists"
    if confirmation.unfinished:
        reason += f"; {confirmation.unfinished}"
    if look.decision != "faster":
        reason += "; plain decoding is deployed"
    return Verdict(look.decision, reason, "confirm", best, shown)


def _without_pair(evidence: Evidence, goal: Goal) -> Verdict:
    if not evidence.stopped:
        return Verdict("inconclusive", "no candidate ran, so plain decoding is deployed", "tune")
    best = evidence.stopped[0]
    ratio = best.vs_plain
    decision = stats.verdict(stats.Ratio(ratio.value, ratio.low, ratio.high, best.repeats))
    reason = (
        f"every candidate was stopped early; the best, {best.config.label}, made {ratio} of plain "
        f"decoding's {goal.quantity}, so plain decoding is deployed"
    )
    # What looks faster here was stopped, so it never had the passes that would show it.
    kept = "inconclusive" if decision == "faster" else decision
    return Verdict(kept, reason, "tune", best.config, ratio)


def _lossy(lossless: Lossless, *, refused: bool) -> str:
    """That the greedy answers differ, and what follows."""
    ours, control = lossless.candidate, lossless.control
    consequence = "so plain decoding is deployed; --allow-lossy would deploy it"
    return (
        f"{ours.wide} of {ours.prompts} greedy answers differ from plain decoding's beyond "
        f"near-ties, {control.wide} of {control.prompts} between two launches of plain decoding, "
        f"{consequence if refused else 'deployed by --allow-lossy'}"
    )
