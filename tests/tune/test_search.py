"""The search loop on a machine that measures nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import (
    AutospecError,
    ConfigError,
    EngineMissingError,
    InterruptedStudyError,
    LaunchError,
    LaunchTimeoutError,
    MeasureError,
    ModelError,
    OutOfMemoryError,
    PortTakenError,
    RequestError,
    ServerDiedError,
    StorageError,
    StudyError,
    WireError,
)
from autospec.measurement import Measurement
from autospec.tune.budget import Budget
from autospec.tune.samplers import make_sampler
from autospec.tune.search import SearchOutcome, run_search
from autospec.tune.study import Study
from autospec.tune.trial import Listener
from tests.tune.fakes import CANDIDATES, FakeMachine, Recorder, measured, speed


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """A study without trials."""
    with Study.create(tmp_path / "study", {}) as study:
        yield study


def search(
    study: Study,
    machine: FakeMachine,
    budget: Budget | None = None,
    *,
    sampler: str = "grid",
    listener: Listener | None = None,
    reserve_s: float = 0.0,
) -> SearchOutcome:
    """Run a search on the fake machine."""
    return run_search(
        study,
        make_sampler(sampler, CANDIDATES, 0),
        machine.measure,
        budget or Budget(),
        clock=machine.clock,
        listener=listener,
        reserve_s=lambda: reserve_s,
    )


def result(outcome: SearchOutcome) -> list[tuple[SpecConfig, float]]:
    """What a search ends with."""
    return [(item.config, item.value) for item in outcome.ranked]


def test_plain_comes_first_and_every_candidate_is_ranked(study: Study) -> None:
    """The best candidate comes first, with its value against plain and its measurement."""
    machine = FakeMachine()
    outcome = search(study, machine)
    assert machine.measured == [PLAIN, *CANDIDATES]
    assert outcome.baseline.config == PLAIN
    assert outcome.stop_reason == "every candidate was measured"
    assert {item.config for item in outcome.ranked} == set(CANDIDATES)
    values = [item.value for item in outcome.ranked]
    assert values == sorted(values, reverse=True)
    for item in outcome.ranked:
        assert item.value == pytest.approx(math.log(speed(item.config)))
        assert item.measurement == FakeMachine().measure(item.config)


def test_the_baseline_is_handed_over_before_the_first_candidate(study: Study) -> None:
    """Once a session, whether it was measured now or before."""
    told: list[tuple[SpecConfig, int]] = []
    for _ in range(2):
        machine = FakeMachine()
        run_search(
            study,
            make_sampler("grid", CANDIDATES, 0),
            machine.measure,
            Budget(max_trials=1),
            clock=machine.clock,
            on_baseline=lambda found: told.append((found.config, len(study.trials("tune")))),
        )
    assert told == [(PLAIN, 1), (PLAIN, 2)]


def test_ties_are_ranked_in_the_order_of_configurations(study: Study) -> None:
    """Equal values have one order."""
    outcome = run_search(
        study,
        make_sampler("random", CANDIDATES, 0),
        lambda config: measured(config, {1: [10.0]}),
        Budget(),
        clock=lambda: 0.0,
    )
    assert [item.config for item in outcome.ranked] == sorted(CANDIDATES)


def test_the_number_of_trials_counts_candidates_not_plain(study: Study) -> None:
    """``max_trials`` candidates are measured, over all sessions."""
    machine = FakeMachine()
    outcome = search(study, machine, Budget(max_trials=3))
    assert machine.measured == [PLAIN, *CANDIDATES[:3]]
    assert outcome.stop_reason == "the 3 trials asked for are done"
    search(study, machine, Budget(max_trials=5))
    assert machine.measured == [PLAIN, *CANDIDATES[:5]]
    search(study, machine, Budget(max_trials=5))
    assert machine.measured == [PLAIN, *CANDIDATES[:5]]


@pytest.mark.parametrize(("seconds", "num_candidates"), [(59, 0), (60, 1), (179, 4), (180, 5)])
def test_no_trial_is_started_that_would_exceed_the_budget(
    study: Study, seconds: float, num_candidates: int
) -> None:
    """Trials of 30 s fit while the seconds used and the mean so far stay within."""
    machine = FakeMachine()
    outcome = search(study, machine, Budget(seconds=seconds))
    assert len(machine.measured) == 1 + num_candidates
    assert machine.now_s - 1000 <= max(seconds, 30)
    assert outcome.stop_reason.startswith("the budget of ")


def test_time_for_the_confirmation_is_kept(study: Study) -> None:
    """A reserve takes its time from the search."""
    machine = FakeMachine()
    outcome = search(study, machine, Budget(seconds=180), reserve_s=70)
    assert len(machine.measured) == 3
    assert outcome.stop_reason == (
        "the budget of 3m: 1m30s used, a trial needs 30s and 1m10s to confirm"
    )


def test_the_budget_spans_sessions(study: Study) -> None:
    """Seconds of an earlier session count; time between sessions does not."""
    machine = FakeMachine()
    search(study, machine, Budget(seconds=90))
    machine.now_s += 10_000
    search(study, machine, Budget(seconds=150))
    assert machine.measured == [PLAIN, *CANDIDATES[:4]]


@pytest.mark.parametrize(
    "error",
    [
        LaunchError("did not start", log_tail="the end"),
        LaunchTimeoutError("hung", log_tail="the end"),
        OutOfMemoryError("out of memory", log_tail="the end"),
        ServerDiedError("died", log_tail="the end"),
        RequestError("refused"),
        WireError("no key"),
        MeasureError("nothing to trust"),
        ConfigError("breaks a rule"),
    ],
)
def test_a_candidate_that_cannot_be_measured_is_recorded(
    study: Study, error: AutospecError
) -> None:
    """The error and the log's end are kept, the search goes on, the candidate is not ranked."""
    listener = Recorder()
    bad = CANDIDATES[1]
    outcome = search(study, FakeMachine({bad: error}), listener=listener)
    assert {item.config for item in outcome.ranked} == set(CANDIDATES) - {bad}
    (failed,) = [trial for trial in study.trials() if trial.state == "failed"]
    assert (failed.config, failed.error, failed.seconds) == (bad, str(error), 30.0)
    assert failed.log_tail == getattr(error, "log_tail", "")
    assert failed in listener.finished


def test_an_error_of_many_lines_is_kept_as_one(study: Study) -> None:
    """A table of trials has one line a trial."""
    search(
        study,
        FakeMachine({CANDIDATES[0]: LaunchError("first\n  second"), CANDIDATES[1]: MeasureError()}),
    )
    errors = [trial.error for trial in study.trials() if trial.state == "failed"]
    assert errors == ["first second", "MeasureError"]


def test_every_candidate_may_fail(study: Study) -> None:
    """The outcome is plain alone."""
    machine = FakeMachine(dict.fromkeys(CANDIDATES, OutOfMemoryError("too large")))
    outcome = search(study, machine, sampler="gp")
    assert outcome.ranked == ()
    assert len(machine.measured) == 1 + len(CANDIDATES)


def test_a_failed_candidate_is_not_tried_again_by_a_later_session(study: Study) -> None:
    """A failure is a result."""
    search(study, FakeMachine({CANDIDATES[0]: LaunchError("no")}), Budget(max_trials=1))
    machine = FakeMachine()
    search(study, machine)
    assert machine.measured == list(CANDIDATES[1:])


def test_plain_decoding_that_fails_ends_the_search(study: Study) -> None:
    """Without a baseline nothing can be compared: recorded, raised, and tried anew later."""
    with pytest.raises(LaunchError, match="no memory"):
        search(study, FakeMachine({PLAIN: LaunchError("no memory", log_tail="tail")}))
    (trial,) = study.trials()
    assert (trial.state, trial.config, trial.log_tail) == ("failed", PLAIN, "tail")
    machine = FakeMachine()
    search(study, machine)
    assert machine.measured == [PLAIN, *CANDIDATES]


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        InterruptedStudyError("stopped"),
        StorageError("disk full"),
        StudyError("gone"),
        ModelError("no such model"),
        EngineMissingError("not installed"),
        PortTakenError("in use"),
        ZeroDivisionError("a defect"),
    ],
)
@pytest.mark.parametrize("at", [PLAIN, CANDIDATES[2]])
def test_what_concerns_every_trial_ends_the_search_and_loses_nothing(
    study: Study, error: BaseException, at: SpecConfig
) -> None:
    """The running trial is put back and measured first when the study goes on."""
    with pytest.raises(type(error)):
        search(study, FakeMachine({at: error}))
    *earlier, last = study.trials()
    assert (last.config, last.state, last.seconds) == (at, "interrupted", 30.0)
    assert {trial.state for trial in earlier} <= {"complete"}
    machine = FakeMachine()
    search(study, machine)
    assert machine.measured[0] == at
    assert machine.measured == [PLAIN, *CANDIDATES][len(earlier) :]


def test_the_first_error_is_raised_when_putting_back_fails_too(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt on a full disk is still an interrupt, and the trial is found by ``recover``."""

    def full(*_: object) -> None:
        raise StorageError("disk full")

    monkeypatch.setattr(study, "put_back", full)
    with pytest.raises(KeyboardInterrupt):
        search(study, FakeMachine({CANDIDATES[0]: KeyboardInterrupt()}))
    monkeypatch.undo()
    assert [trial.config for trial in study.recover()] == [CANDIDATES[0]]


@pytest.mark.parametrize("sampler", ["grid", "random", "gp"])
@pytest.mark.parametrize("stop_at", [0, 1, 4, len(CANDIDATES)])
def test_a_search_resumed_anywhere_ends_like_one_never_stopped(
    tmp_path: Path, sampler: str, stop_at: int
) -> None:
    """Killed in mid-trial, opened again: the same trials in the same order, the same ranking."""
    errors: dict[SpecConfig, BaseException] = {CANDIDATES[3]: OutOfMemoryError("too large")}
    whole = FakeMachine(dict(errors))
    with Study.create(tmp_path / "whole", {}) as study:
        expected = result(search(study, whole, sampler=sampler))

    dying = FakeMachine(dict(errors) | {whole.measured[stop_at]: SystemExit()})
    with Study.create(tmp_path / "parts", {}) as study:
        # SIGKILL gives no chance to put a trial back.
        study.put_back = lambda *_: None  # type: ignore[method-assign]
        with pytest.raises(SystemExit):
            search(study, dying, sampler=sampler)
        assert study.trials()[-1].state == "running"
    second = FakeMachine(dict(errors))
    with Study.open(tmp_path / "parts") as study:
        assert result(search(study, second, sampler=sampler)) == expected
    assert dying.measured[:-1] + second.measured == whole.measured


def test_the_listener_hears_of_each_trial_with_its_reason(study: Study) -> None:
    """Numbers are those of the study, and what is finished is the stored row."""
    listener = Recorder()
    search(study, FakeMachine(), Budget(max_trials=2), listener=listener)
    assert listener.started == [
        (1, PLAIN, "the baseline"),
        (2, CANDIDATES[0], "next of the grid"),
        (3, CANDIDATES[1], "next of the grid"),
    ]
    assert listener.finished == list(study.trials())


def without_runs(config: SpecConfig) -> Measurement:
    """Plain decoding alone is measured."""
    return measured(config, {1: [10.0]} if config.is_plain else {})


def not_finite(config: SpecConfig) -> Measurement:
    """A number that cannot be stored stands where no score looks."""
    good = measured(config, {1: [10.0]})
    extra = measured(config, {2: [10.0 if config.is_plain else math.nan]}, "confirm")
    return Measurement(config, good.runs + extra.runs, 1.0, 1.0)


@pytest.mark.parametrize("measure", [without_runs, not_finite])
def test_a_measurement_without_a_value_is_a_failed_trial(
    study: Study, measure: Callable[[SpecConfig], Measurement]
) -> None:
    """What cannot be scored or stored is recorded as failed, never as a number."""
    outcome = run_search(
        study, make_sampler("grid", CANDIDATES, 0), measure, Budget(), clock=lambda: 0.0
    )
    assert outcome.ranked == ()
    assert [trial.state for trial in study.trials()] == ["complete"] + ["failed"] * len(CANDIDATES)


def test_no_candidates_leave_plain_alone(study: Study) -> None:
    """A space that an engine refuses whole still gives the baseline."""
    machine = FakeMachine()
    outcome = run_search(
        study, make_sampler("gp", (), 0), machine.measure, Budget(), clock=machine.clock
    )
    assert machine.measured == [PLAIN]
    assert outcome.stop_reason == "every candidate was measured"
