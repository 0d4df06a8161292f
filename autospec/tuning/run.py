"""``autospec tune`` from its first check to its profile."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from autospec import schema
from autospec.engine.models import read_model
from autospec.errors import StorageError
from autospec.evidence import Noise, Provenance
from autospec.measurement import Measurement
from autospec.profile import STUDY_PROFILE, Profile, save_profile
from autospec.tune.budget import PLAIN_LAUNCHES, Budget, Cost, Plan, plan
from autospec.tune.objective import find_objective
from autospec.tune.samplers import make_sampler
from autospec.tune.search import SearchOutcome, run_search
from autospec.tune.study import Study
from autospec.tune.trial import Listener
from autospec.tuning.arm import Arms, PassListener
from autospec.tuning.conclude import Evidence, conclude, needs_confirmation
from autospec.tuning.confirm import ConfirmPlan, confirm
from autospec.tuning.noise import known_noise, launch_again
from autospec.tuning.prepare import CONFIRM_LAUNCHES, Prepared, prepare, round_s
from autospec.tuning.request import TuneRequest

__all__ = ["TuneListener", "resume_tune", "start_tune"]


class TuneListener(Listener, PassListener, Protocol):
    """Told everything that a person may want to see while a study runs."""

    def planned(self, plan: Plan, prepared: Prepared) -> None:
        """What is going to happen, before it does."""
        ...


def start_tune(
    request: TuneRequest, folder: Path, command: str, listener: TuneListener
) -> tuple[Profile, Path]:
    """Begin a study and run it to its profile.

    Args:
        request: what is asked for.
        folder: new or empty; the study is kept there.
        command: how the user began it, for the profile.
        listener: told what happens.

    Returns:
        The profile, and the file that it was written to.

    Raises:
        AutospecError: before anything is launched for whatever the user must put right, later when
            plain decoding cannot be measured.
        KeyboardInterrupt: everything finished is in the study.
    """
    prepared = prepare(request, listener.note)
    make_sampler(request.sampler, prepared.candidates, request.seed)
    find_objective(request.objective)
    _check_writable(Path(request.output))
    planned = _plan(prepared, None)
    with Study.create(folder, schema.dump(prepared.request)) as study:
        listener.planned(planned, prepared)
        return _run(study, prepared, command, listener)


def resume_tune(
    folder: Path,
    command: str,
    listener: TuneListener,
    changes: Mapping[str, Any],
) -> tuple[Profile, Path]:
    """Go on with an interrupted study, or write a finished one's profile again.

    Args:
        folder: the study's.
        command: how the user began it, for the profile.
        listener: told what happens.
        changes: fields of the request to set anew: its limits and its output.

    Returns:
        The profile, and the file that it was written to.

    Raises:
        StudyError: no study of this command, one in use, or one of another workload or machine.
    """
    with Study.open(folder) as study:
        study.lock()
        request = replace(TuneRequest.from_study(study.request, str(folder)), **changes)
        prepared = prepare(request, listener.note)
        _check_writable(Path(request.output))
        listener.planned(_plan(prepared, study), prepared)
        return _run(study, prepared, command, listener)


def _run(
    study: Study, prepared: Prepared, command: str, listener: TuneListener
) -> tuple[Profile, Path]:
    request = prepared.request
    for warning in prepared.parts.workload.warnings:
        listener.note(warning)
    left_s = (request.budget_s or math.inf) - study.seconds_used()
    arms = Arms(prepared, study.folder, listener, deadline_s=time.monotonic() + left_s)

    def show_noise(baseline: Measurement) -> None:
        if _holds_noise(prepared, study):
            launch_again(study, arms, listener)
        noise = known_noise(study, baseline)
        if noise is not None:
            listener.note(f"noise     {noise}")

    outcome = run_search(
        study,
        make_sampler(request.sampler, prepared.candidates, request.seed),
        arms.measure,
        Budget(request.budget_s, request.max_trials),
        clock=time.monotonic,
        listener=listener,
        objective=find_objective(request.objective),
        reserve_s=lambda: _cost(prepared, study).confirm_s,
        on_baseline=show_noise,
    )
    listener.note(f"search ended: {outcome.stop_reason}")
    noise = known_noise(study, outcome.baseline)
    confirmation = None
    if needs_confirmation(outcome, noise):
        finalist = outcome.ranked[0].config
        listener.note(f"confirming {finalist.label} on held-out prompts")
        plan = _confirm_plan(request, noise)
        confirmation = confirm(study, arms, finalist, plan, listener)
    profile = conclude(
        prepared,
        Evidence(
            outcome=outcome,
            confirmation=confirmation,
            failed=tuple(trial for trial in study.trials("tune") if trial.state == "failed"),
            draft_digest=_draft_digest(outcome),
            noise=noise,
        ),
        _provenance(request, study, command, outcome),
    )
    save_profile(study.folder / STUDY_PROFILE, profile)
    output = Path(request.output)
    save_profile(output, profile)
    return profile, output


def _provenance(
    request: TuneRequest, study: Study, command: str, outcome: SearchOutcome
) -> Provenance:
    return Provenance(
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=request.seed,
        sampler=request.sampler,
        trials=sum(trial.has_ended for trial in study.trials("tune")),
        duration_s=round(study.seconds_used(), 1),
        stopped_because=outcome.stop_reason,
    )


def _confirm_plan(request: TuneRequest, noise: Noise | None) -> ConfirmPlan:
    return ConfirmPlan(
        repeats=request.repeats,
        concurrencies=request.concurrencies,
        rounds=request.confirm_rounds,
        noise_floor=noise.floor if noise else 0.0,
        budget_s=request.budget_s,
    )


def _holds_noise(prepared: Prepared, study: Study) -> bool:
    """Whether the budget holds a second launch of plain decoding and what the study is for."""
    budget_s, cost = prepared.request.budget_s, _cost(prepared, study)
    needed_s = 2 * cost.trial_s + cost.confirm_s
    return budget_s is None or study.seconds_used() + needed_s <= budget_s


def _plan(prepared: Prepared, study: Study | None) -> Plan:
    request = prepared.request
    trials = [trial for trial in study.trials("tune") if trial.has_ended] if study else []
    measured = {trial.config for trial in trials}
    planned = plan(
        sum(config not in measured for config in prepared.candidates),
        Budget(request.budget_s, request.max_trials),
        _cost(prepared, study),
        used_s=study.seconds_used() if study else 0.0,
        trials_done=sum(not trial.config.is_plain for trial in trials),
        plain_launches=_plain_launches(study),
    )
    if study is None or planned.trials:
        return planned
    # Nothing more is searched, so the finalist stays, and with it the launches that confirmed it.
    done = sum(trial.state == "complete" for trial in study.trials("confirm"))
    left = CONFIRM_LAUNCHES - done if done < CONFIRM_LAUNCHES else -done % CONFIRM_LAUNCHES
    cost = replace(
        planned.cost,
        confirm_s=planned.cost.confirm_s * left / CONFIRM_LAUNCHES,
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


def _cost(prepared: Prepared, study: Study | None) -> Cost:
    """Seconds a trial: what plain decoding took here, once it was measured."""
    plain = [
        trial
        for trial in (study.trials("tune") if study else ())
        if trial.config.is_plain and trial.state == "complete"
    ]
    if study is None or not plain:
        return prepared.cost
    measured = study.measurement(plain[-1].id)
    passes_s = max(0.0, measured.duration_s - measured.launch_s)
    return replace(
        prepared.cost,
        launch_s=measured.launch_s,
        passes_s=passes_s,
        confirm_s=round_s(
            prepared.request, prepared.parts, measured.launch_s, passes_s, _request_s(measured)
        ),
    )


def _request_s(measured: Measurement) -> float:
    """One request's share of a pass at the highest concurrency, in s."""
    most = max(run.concurrency for run in measured.runs)
    runs = [run for run in measured.runs if run.concurrency == most]
    return sum(run.duration_s for run in runs) / sum(len(run.records) for run in runs)


def _draft_digest(outcome: SearchOutcome) -> str | None:
    draft = outcome.ranked[0].config.draft_model if outcome.ranked else None
    return read_model(draft).digest if draft else None


def _check_writable(output: Path) -> None:
    """Find out before hours of measuring that the profile could not be written."""
    if output.is_dir():
        raise StorageError(f"{output}: is a folder, must be the profile's file")
    schema.write_text(output.with_name(f".{output.name}.probe"), "")
    output.with_name(f".{output.name}.probe").unlink()
