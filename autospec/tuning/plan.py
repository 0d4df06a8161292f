"""What a study is going to do and take, from what was asked for and what it already has."""

from __future__ import annotations

from dataclasses import replace

from autospec.measurement import Measurement
from autospec.tune.budget import PLAIN_LAUNCHES, Budget, Cost, Plan, plan
from autospec.tune.study import Study
from autospec.tuning.costs import round_s
from autospec.tuning.prepare import Prepared, most_finalists
from autospec.tuning.rounds import launches_left

__all__ = ["cost_here", "holds_noise", "plan_study", "round_here"]


def plan_study(prepared: Prepared, study: Study | None) -> Plan:
    """What is going to happen, given what the study already has."""
    request = prepared.request
    trials = [trial for trial in study.trials("tune") if trial.has_ended] if study else []
    measured = {trial.config for trial in trials}
    planned = plan(
        sum(config not in measured for config in prepared.candidates),
        Budget(request.budget_s, request.max_trials),
        cost_here(prepared, study),
        used_s=study.seconds_used() if study else 0.0,
        trials_done=sum(not trial.config.is_plain for trial in trials),
        plain_launches=_plain_launches(study),
    )
    if study is None or planned.trials:
        return planned
    # Nothing more is searched, so the finalists stay, and with them the launches made for them.
    launches, left = planned.cost.confirm_launches, launches_left(study)
    left = launches if left is None else left
    cost = replace(
        planned.cost,
        confirm_s=planned.cost.confirm_s * left / launches,
        confirm_launches=left,
        confirm_rounds=1,
    )
    return replace(planned, cost=cost)


def _plain_launches(study: Study | None) -> int:
    """Launches of plain decoding, the one for the noise among them, that are still to be made."""
    if study is None:
        return PLAIN_LAUNCHES
    baseline = any(t.config.is_plain and t.state == "complete" for t in study.trials("tune"))
    noise = any(trial.has_ended for trial in study.trials("noise"))
    return PLAIN_LAUNCHES - baseline - noise


def cost_here(prepared: Prepared, study: Study | None) -> Cost:
    """Seconds a trial: what plain decoding took here, once it was measured."""
    plain = [
        trial
        for trial in (study.trials("tune") if study else ())
        if trial.config.is_plain and trial.state == "complete"
    ]
    if study is None or not plain:
        return prepared.cost
    measured = study.measurement(plain[-1].id)
    return replace(
        prepared.cost,
        launch_s=measured.launch_s,
        passes_s=_passes_s(measured),
        confirm_s=round_here(prepared, measured),
    )


def round_here(prepared: Prepared, measured: Measurement, finalists: int | None = None) -> float:
    """Seconds of a round of the confirmation, of all finalists there may be unless it is said."""
    return round_s(
        prepared.request,
        prepared.parts,
        launch_s=measured.launch_s,
        passes_s=_passes_s(measured),
        request_s=_request_s(measured),
        finalists=finalists or most_finalists(prepared.request, len(prepared.candidates)),
    )


def _passes_s(measured: Measurement) -> float:
    return max(0.0, measured.duration_s - measured.launch_s)


def _request_s(measured: Measurement) -> float:
    """One request's share of a pass at the highest concurrency, in s."""
    most = max(run.concurrency for run in measured.runs)
    runs = [run for run in measured.runs if run.concurrency == most]
    return sum(run.duration_s for run in runs) / sum(len(run.records) for run in runs)


def holds_noise(prepared: Prepared, study: Study) -> bool:
    """Whether the budget holds a second launch of plain decoding and what the study is for."""
    budget_s, cost = prepared.request.budget_s, cost_here(prepared, study)
    needed_s = 2 * cost.trial_s + cost.confirm_s
    return budget_s is None or study.seconds_used() + needed_s <= budget_s
