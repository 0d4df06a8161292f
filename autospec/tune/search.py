"""The search: plain decoding first, then what the sampler asks for, until a limit.

Measuring is handed in, so nothing here knows an engine. What a dead session left is measured again,
what it finished is told to the sampler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from autospec.config import PLAIN, SpecConfig
from autospec.errors import AutospecError
from autospec.measurement import Measurement
from autospec.tune.budget import Budget, Clock, format_duration
from autospec.tune.objective import Objective, score
from autospec.tune.samplers import LEAST_GAIN, Proposal, Sampler
from autospec.tune.seen import seen_of
from autospec.tune.study import Study, Trial
from autospec.tune.trial import Listener, SilentListener, run_trial

__all__ = ["Ranked", "SearchOutcome", "run_search"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """A complete candidate.

    Attributes:
        config: what was tried.
        value: the objective, larger is better, 0 is plain decoding's.
        trial_id: its trial in the study.
        load: reads its measurement from the study, which must be open.
    """

    config: SpecConfig
    value: float
    trial_id: int
    load: Callable[[int], Measurement] = field(repr=False, compare=False)

    @property
    def measurement(self) -> Measurement:
        """Everything measured, read from the study: measurements are large, candidates many."""
        return self.load(self.trial_id)


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """What a search found.

    Attributes:
        baseline: plain decoding.
        ranked: the complete candidates, best first.
        stop_reason: why the search ended, one line.
    """

    baseline: Measurement
    ranked: tuple[Ranked, ...]
    stop_reason: str


def run_search(
    study: Study,
    sampler: Sampler,
    measure: Callable[[SpecConfig], Measurement],
    budget: Budget,
    *,
    clock: Callable[[], float],
    listener: Listener | None = None,
    objective: Objective = score,
    reserve_s: Callable[[], float] = lambda: 0.0,
    spared_s: Callable[[], float] = lambda: 0.0,
    on_baseline: Callable[[Measurement], object] = lambda _baseline: None,
) -> SearchOutcome:
    """Measure plain decoding and candidates until the sampler or a limit ends it.

    A study with trials goes on where it stopped. A configuration that cannot be measured is
    recorded, and the search goes on; when plain decoding cannot be measured, it does not.

    Args:
        study: where trials are kept; it is locked.
        sampler: fresh; it is told the trials of earlier sessions.
        measure: starts a server, measures, stops it.
        budget: over all sessions.
        clock: monotonic, in seconds.
        listener: told of each trial.
        objective: value of a measurement against plain's.
        reserve_s: gives the time of the budget to keep for the confirmation, in seconds; asked
            before each candidate, since the first trial tells what time things take here.
        spared_s: gives what the trials of this session saved by sharing launches, in seconds: the
            next one may need a launch of its own.
        on_baseline: called with plain decoding's measurement before the first candidate.

    Raises:
        AutospecError: plain decoding could not be measured, or no further trial can be.
        StorageError: the study cannot be written.
        KeyboardInterrupt: after putting the running trial back.
    """
    interrupted = study.recover()
    search = _Search(study, measure, clock, listener or SilentListener(), objective)
    baseline = search.baseline()
    on_baseline(baseline)
    for trial in study.trials("tune"):
        if trial.has_ended:
            search.tell(sampler, trial)
    again = deque(
        Proposal(trial.config, "interrupted before")
        for trial in interrupted
        if trial.kind == "tune" and not trial.config.is_plain
    )
    while True:
        stop_reason = search.limit_reached(budget, reserve_s, spared_s())
        if stop_reason:
            break
        proposal = again.popleft() if again else sampler.ask()
        if proposal is None:
            stop_reason = "every candidate was measured"
            break
        if proposal.gain is not None and proposal.gain < LEAST_GAIN:
            stop_reason = f"nothing left worth a trial: at best {proposal.gain:.2%} more expected"
            break
        search.tell(sampler, search.try_one(proposal, baseline))
    return SearchOutcome(baseline, search.ranked(), stop_reason)


class _Search:
    """One session on a study."""

    def __init__(
        self,
        study: Study,
        measure: Callable[[SpecConfig], Measurement],
        clock: Callable[[], float],
        listener: Listener,
        objective: Objective,
    ) -> None:
        self._study = study
        self._measure = measure
        self._now = clock
        self._clock = Clock(clock, study.seconds_used())
        self._listener = listener
        self._objective = objective

    def baseline(self) -> Measurement:
        """Plain decoding, measured unless the study has it; an error ends the search."""
        plain = [trial for trial in self._complete() if trial.config.is_plain]
        if plain:
            return self._study.measurement(plain[-1].id)
        trial, error = self._run(
            Proposal(PLAIN, "the baseline"),
            lambda measured: self._objective(measured, measured, "tune"),
        )
        if error:
            raise error
        return self._study.measurement(trial.id)

    def try_one(self, proposal: Proposal, baseline: Measurement) -> Trial:
        """Measure a candidate; what it does wrong becomes a failed trial."""
        trial, _ = self._run(proposal, lambda measured: self._objective(measured, baseline, "tune"))
        return trial

    def tell(self, sampler: Sampler, trial: Trial) -> None:
        """Report a trial that has ended; one that was stopped early has figures too."""
        if trial.state == "failed":
            sampler.tell(trial.config, None)
        else:
            sampler.tell(trial.config, trial.value, seen_of(self._study.measurement(trial.id)))

    def limit_reached(self, budget: Budget, reserve: Callable[[], float], spared_s: float) -> str:
        """Why no further candidate may be started, or nothing."""
        trials = [trial for trial in self._study.trials("tune") if trial.has_ended]
        num_candidates = sum(not trial.config.is_plain for trial in trials)
        if budget.max_trials is not None and num_candidates >= budget.max_trials:
            return f"the {budget.max_trials} trials asked for are done"
        if budget.seconds is None:
            return ""
        took_s = sum(trial.seconds or 0.0 for trial in trials) + spared_s
        expected_s = took_s / max(1, len(trials))
        used_s, reserve_s = self._clock.used_s(), reserve()
        if used_s + expected_s + reserve_s <= budget.seconds:
            return ""
        kept = f" and {format_duration(reserve_s)} to confirm" if reserve_s else ""
        return (
            f"the budget of {format_duration(budget.seconds)}: {format_duration(used_s)} used, "
            f"a trial needs {format_duration(expected_s)}{kept}"
        )

    def ranked(self) -> tuple[Ranked, ...]:
        """The complete candidates, best first."""
        found = [
            Ranked(trial.config, trial.value, trial.id, self._study.measurement)
            for trial in self._complete()
            if not trial.config.is_plain and trial.value is not None
        ]
        return tuple(sorted(found, key=lambda item: (-item.value, item.config)))

    def _run(
        self, proposal: Proposal, evaluate: Callable[[Measurement], float]
    ) -> tuple[Trial, AutospecError | None]:
        return run_trial(
            self._study,
            "tune",
            proposal,
            self._measure,
            evaluate=evaluate,
            clock=self._now,
            listener=self._listener,
        )

    def _complete(self) -> list[Trial]:
        return [trial for trial in self._study.trials("tune") if trial.state == "complete"]
