"""``autospec tune`` from its first check to its profile."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from autospec import schema
from autospec.config import PLAIN, SpecConfig
from autospec.control.choose import sibling_policy
from autospec.engine.models import read_model
from autospec.errors import StorageError
from autospec.evidence import Provenance
from autospec.measurement import Measurement
from autospec.profile import STUDY_PROFILE, Profile, save_profile
from autospec.tune.budget import Budget, Plan
from autospec.tune.objective import find_objective
from autospec.tune.samplers import make_sampler
from autospec.tune.search import SearchOutcome, run_search
from autospec.tune.study import Study
from autospec.tune.trial import Listener
from autospec.tuning.arm import Arms, PassListener
from autospec.tuning.collect import Corpus
from autospec.tuning.conclude import conclude
from autospec.tuning.confirm import Confirmation
from autospec.tuning.corpus import ANSWERS, check_corpus
from autospec.tuning.finalists import confirm_best
from autospec.tuning.noise import known_noise, launch_again
from autospec.tuning.plan import cost_here, holds_noise, plan_study
from autospec.tuning.policy_file import save_policy
from autospec.tuning.prepare import Prepared, prepare
from autospec.tuning.race import Race
from autospec.tuning.request import TuneRequest
from autospec.tuning.verdict import Evidence

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
    find_objective(request.objective, request.slo)
    _check_writable(Path(request.output))
    planned = plan_study(prepared, None)
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
        listener.planned(plan_study(prepared, study), prepared)
        return _run(study, prepared, command, listener)


def _run(
    study: Study, prepared: Prepared, command: str, listener: TuneListener
) -> tuple[Profile, Path]:
    request = prepared.request
    for warning in prepared.parts.workload.warnings:
        listener.note(warning)
    left_s = (request.budget_s or math.inf) - study.seconds_used()
    arms = Arms(prepared, study.folder, listener, deadline_s=time.monotonic() + left_s)
    goal = find_objective(request.objective, request.slo)
    corpus = _corpus(request, study.folder)
    race = Race(study, arms.measure, goal, request.repeats)

    def after_baseline(baseline: Measurement) -> None:
        _plain_again(study, prepared, arms, corpus, listener)
        noise = known_noise(study, baseline, goal.figure)
        if noise is not None:
            listener.note(f"noise     {noise}")

    with contextlib.closing(arms):
        outcome = run_search(
            study,
            make_sampler(request.sampler, prepared.candidates, request.seed, running=arms.running),
            race.measure if request.racing else arms.measure,
            Budget(request.budget_s, request.max_trials),
            clock=time.monotonic,
            listener=listener,
            objective=goal,
            reserve_s=lambda: cost_here(prepared, study).confirm_s,
            spared_s=lambda: arms.spared_s,
            on_baseline=after_baseline,
        )
    listener.note(f"search ended: {outcome.stop_reason}")
    noise = known_noise(study, outcome.baseline, goal.figure)
    confirmation = confirm_best(study, prepared, arms, outcome, noise=noise, listener=listener)
    best = _best_config(outcome, confirmation)
    evidence = Evidence(
        outcome=outcome,
        confirmation=confirmation,
        failed=tuple(trial for trial in study.trials("tune") if trial.state == "failed"),
        draft_digest=read_model(best.draft_model).digest if best.draft_model else None,
        corpus_digest=check_corpus(Path(best.corpus)) if best.corpus else None,
        noise=noise,
        stopped=race.stopped(),
    )
    profile = conclude(prepared, evidence, _provenance(request, study, command, outcome))
    output = Path(request.output)
    for path in (study.folder / STUDY_PROFILE, output):
        save_profile(path, profile)
        save_policy(profile, path)
    return profile, output


def _plain_again(
    study: Study, prepared: Prepared, arms: Arms, corpus: Corpus | None, listener: TuneListener
) -> None:
    """Launch plain decoding once more where the budget holds it, and build what needs it."""
    if holds_noise(prepared, study):
        launch_again(study, arms, listener, ask=corpus.ask() if corpus else None)
    if corpus is not None:
        corpus.require(study, arms, listener)


def _corpus(request: TuneRequest, folder: Path) -> Corpus | None:
    """The n-gram corpus that is to be built, if one is."""
    if request.corpus != ANSWERS:
        return None
    return Corpus(Path(request.corpus_path), folder, max(request.concurrencies))


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


def _best_config(outcome: SearchOutcome, confirmation: Confirmation | None) -> SpecConfig:
    if confirmation is not None and confirmation.best is not None:
        return confirmation.best.config
    return outcome.ranked[0].config if outcome.ranked else PLAIN


def _check_writable(output: Path) -> None:
    """Find out before hours of measuring that the profile could not be written."""
    for path, what in ((output, "profile"), (sibling_policy(output), "policy")):
        if path.is_dir():
            raise StorageError(f"{path}: is a folder, must be the {what}'s file")
    schema.write_text(output.with_name(f".{output.name}.probe"), "")
    output.with_name(f".{output.name}.probe").unlink()
