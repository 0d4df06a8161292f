"""Racing: what is clearly behind stops early, what is as good seldom does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.measure.harness import Until
from autospec.measurement import Measurement
from autospec.tune.budget import Budget
from autospec.tune.objective import find_objective
from autospec.tune.samplers import grid
from autospec.tune.search import SearchOutcome, run_search
from autospec.tune.study import Study
from autospec.tuning.race import ALPHA, Race
from tests.tune.fakes import measured

GOAL = find_objective("throughput")
REPEATS = 3


def config(tokens: int) -> SpecConfig:
    """An n-gram configuration."""
    return SpecConfig("NGRAM", num_draft_tokens=tokens)


class Machine:
    """Makes pass after pass until it is told to stop.

    Args:
        speeds: throughput over plain decoding's, by configuration.
        noise: standard deviation of a pass's logarithm.
        seed: of the noise.
    """

    def __init__(self, speeds: dict[SpecConfig, float], noise: float = 0.0, seed: int = 0) -> None:
        self.speeds = speeds
        self.passes: dict[SpecConfig, int] = {}
        self._noise = noise
        self._rng = np.random.default_rng(seed)

    def measure(self, wanted: SpecConfig, *, until: Until | None = None) -> Measurement:
        """Passes at concurrency 1 and 4, repeat by repeat."""
        speed = self.speeds.get(wanted, 1.0)
        factors = np.exp(self._rng.normal(0, self._noise, (2, REPEATS))) * speed
        for made in range(1, REPEATS + 1):
            rates = {1: list(10 * factors[0, :made]), 4: list(40 * factors[1, :made])}
            found = measured(wanted, rates)
            self.passes[wanted] = made
            if until is not None and made < REPEATS and (reason := until(found.runs)):
                return Measurement(wanted, found.runs, 1.0, 2.0, stopped=reason)
        return found


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    """An empty study."""
    with Study.create(tmp_path / "study", {}) as study:
        yield study


def search(
    study: Study, machine: Machine, candidates: Sequence[SpecConfig]
) -> tuple[SearchOutcome, Race]:
    """Try every candidate, fewest tokens first."""
    race = Race(study, machine.measure, GOAL, REPEATS)
    outcome = run_search(
        study,
        grid(candidates, 0),
        race.measure,
        Budget(),
        clock=lambda: 0.0,
        objective=GOAL,
    )
    return outcome, race


def test_candidate_far_behind_is_stopped_and_recorded_as_pruned(study: Study) -> None:
    """With how far it came and what it showed; the complete ones are ranked without it."""
    speeds = {config(2): 1.5, config(3): 1.55, config(4): 0.5}
    machine = Machine(speeds, noise=0.01)
    outcome, race = search(study, machine, list(speeds))
    assert machine.passes == {PLAIN: 3, config(2): 3, config(3): 3, config(4): 1}
    states = {trial.config: trial for trial in study.trials("tune")}
    assert states[config(4)].state == "pruned"
    error = states[config(4)].error or ""
    assert error.startswith("stopped after 1 of 3 repeats: 0.3")
    assert error.endswith(f"of {config(3).label}'s tokens/s")
    assert states[config(4)].value == pytest.approx(np.log(0.5), abs=0.05)
    assert len(study.measurement(states[config(4)].id).runs) == 2
    assert {item.config for item in outcome.ranked} == {config(2), config(3)}
    assert [(row.config, row.repeats) for row in race.stopped()] == [(config(4), 1)]


def test_candidate_worse_than_plain_is_stopped_though_no_other_is_better(study: Study) -> None:
    """Plain decoding is what the first ones run against; it is never stopped itself."""
    speeds = {config(tokens): 0.5 + tokens / 100 for tokens in range(2, 8)}
    machine = Machine(speeds, noise=0.01)
    outcome, race = search(study, machine, list(speeds))
    assert machine.passes[PLAIN] == 3
    assert machine.passes[config(7)] == 1
    assert [item.config for item in outcome.ranked] == [config(2)]
    best = race.stopped()[0]
    assert best.config == config(7)
    assert best.vs_plain.high < 1
    assert best.vs_plain.low < 0.57 < best.vs_plain.high


def test_first_repeat_stops_nothing_while_the_spread_is_unknown(study: Study) -> None:
    """Two blocks of the very first candidate are too few as well."""
    machine = Machine({config(2): 0.1}, noise=0.01)
    search(study, machine, [config(2)])
    assert machine.passes[config(2)] == 3


def test_equals_are_seldom_stopped(tmp_path: Path) -> None:
    """Over many studies, a candidate as good as the one it runs against: at most ``ALPHA``."""
    stopped = trials = 0
    candidates = [config(tokens) for tokens in range(2, 7)]
    for seed in range(12):
        with Study.create(tmp_path / str(seed), {}) as study:
            search(study, Machine({}, noise=0.03, seed=seed), candidates)
            found = study.trials("tune")
            stopped += sum(trial.state == "pruned" for trial in found)
            trials += len(found) - 1
    # The one run against is the luckiest so far, which equals fall behind more often.
    assert stopped / trials <= 2 * ALPHA


def test_resumed_study_knows_what_was_stopped(study: Study) -> None:
    """A new session reads spread and leader from the study."""
    speeds = {config(2): 1.5, config(3): 1.4, config(4): 0.5}
    search(study, Machine(speeds, noise=0.01), list(speeds))
    again = Race(study, Machine(speeds).measure, GOAL, REPEATS)
    assert [row.config for row in again.stopped()] == [config(3), config(4)]
    machine = Machine({config(9): 0.5}, noise=0.01)
    later = Race(study, machine.measure, GOAL, REPEATS)
    assert "stopped after 1 of 3" in later.measure(config(9)).stopped
    assert Race(study, machine.measure, GOAL, REPEATS).measure(PLAIN).stopped == ""
