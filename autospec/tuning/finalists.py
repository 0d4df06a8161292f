"""The last part of a study: which candidates are worth held-out prompts, and what those say."""

from __future__ import annotations

import math
from typing import Protocol

from autospec.config import SpecConfig
from autospec.evidence import Noise
from autospec.measure import stats
from autospec.measurement import Measurement
from autospec.tune.objective import Figure, find_objective, throughput
from autospec.tune.search import SearchOutcome
from autospec.tune.study import Study
from autospec.tune.trial import Listener
from autospec.tuning import points
from autospec.tuning.arm import Arms, PassListener
from autospec.tuning.confirm import Confirmation, ConfirmPlan, confirm
from autospec.tuning.plan import round_here
from autospec.tuning.prepare import Prepared
from autospec.tuning.rounds import was_begun
from autospec.tuning.verdict import needs_confirmation

__all__ = ["choose_finalists", "confirm_best"]


class FinalListener(Listener, PassListener, Protocol):
    """Told of each launch, and of what is worth a line."""


def choose_finalists(
    outcome: SearchOutcome, most: int, figure: Figure = throughput, noise_floor: float = 0.0
) -> tuple[SpecConfig, ...]:
    """The best candidate, and those next to it that the search could not tell from it.

    Args:
        outcome: of the search, with at least one candidate.
        most: how many at most.
        figure: of a pass, which the candidates are compared by.
        noise_floor: absolute log ratio by which two launches of one configuration differ.

    Returns:
        Best first.
    """
    best = outcome.ranked[0].measurement
    chosen = [best.config]
    for item in outcome.ranked[1:most]:
        ratios = points.versus(
            item.measurement, best, "tune", noise_floor=noise_floor, figure=figure
        )
        if stats.combine(list(ratios.values())).high >= 1:
            chosen.append(item.config)
    return tuple(chosen)


def confirm_best(
    study: Study,
    prepared: Prepared,
    arms: Arms,
    outcome: SearchOutcome,
    *,
    noise: Noise | None,
    listener: FinalListener,
) -> Confirmation | None:
    """The best candidates on held-out prompts, if one may be better than plain decoding."""
    request = prepared.request
    goal = find_objective(request.objective, request.slo)
    if not needs_confirmation(outcome, noise, goal.figure):
        return None
    floor = noise.floor if noise else 0.0
    finalists = choose_finalists(outcome, request.finalists, goal.figure, floor)
    finalists = _affordable(study, prepared, outcome.baseline, finalists)
    names = " and ".join(config.label for config in finalists)
    listener.note(f"confirming {names} on held-out prompts")
    plan = ConfirmPlan(
        repeats=request.repeats,
        concurrencies=request.concurrencies,
        rounds=request.confirm_rounds,
        noise_floor=floor,
        budget_s=request.budget_s,
        allow_lossy=request.allow_lossy,
        figure=goal.figure,
    )
    return confirm(study, arms, finalists, plan, listener)


def _affordable(
    study: Study, prepared: Prepared, baseline: Measurement, finalists: tuple[SpecConfig, ...]
) -> tuple[SpecConfig, ...]:
    """As many of the finalists as the budget holds, or those that an earlier session began with."""
    sizes = range(len(finalists), 0, -1)
    for size in sizes:
        if was_begun(study, finalists[:size]):
            return finalists[:size]
    left_s = (prepared.request.budget_s or math.inf) - study.seconds_used()
    held = [size for size in sizes if round_here(prepared, baseline, size) <= left_s]
    return finalists[: max(held, default=1)]
