"""Searches with each sampler, Optuna's TPE among them, and the table that compares them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import optuna

from autospec.config import PLAIN, SpecConfig
from autospec.tune.gp import unit_columns
from autospec.tune.problems import Outcome, Problem, replay, summarize
from autospec.tune.samplers import Proposal, Sampler, encode
from autospec.tune.seen import Seen
from autospec.tune.shapes import method

#: Within this of plain decoding either verdict is right.
MARGIN = 0.02

Make = Callable[[Sequence[SpecConfig], int], Sampler]


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure beside its aim; an aim that could not be tried has no value."""

    name: str
    value: float | None
    aim: str
    reached: bool


class TPESampler:
    """Optuna's TPE over the method and each of its knobs; what is no candidate goes to the nearest.

    Args:
        candidates: what may be asked for.
        seed: of the sampler.
        trials: as many will be asked for; a third of them, and at least three, are its start.
    """

    def __init__(self, candidates: Sequence[SpecConfig], seed: int, trials: int) -> None:
        self._candidates = sorted(set(candidates))
        self._rows = unit_columns(encode(self._candidates))
        self._methods = sorted({method(config) for config in self._candidates})
        self._open = set(range(len(self._candidates)))
        self._asked: dict[SpecConfig, optuna.trial.Trial] = {}
        tpe = optuna.samplers.TPESampler(seed=seed, n_startup_trials=max(3, trials // 3))
        self._study = optuna.create_study(direction="maximize", sampler=tpe)

    def ask(self) -> Proposal | None:
        """What TPE draws, or the nearest candidate that is left."""
        if not self._open:
            return None
        trial = self._study.ask()
        name = trial.suggest_categorical("method", self._methods)
        mine = [i for i, config in enumerate(self._candidates) if method(config) == name]
        rows = self._rows[mine]
        point = rows.mean(axis=0)
        for column in range(len(self._methods), rows.shape[1]):
            values = sorted(set(rows[:, column].tolist()))
            if len(values) > 1:
                place = trial.suggest_int(f"{name} {column}", 0, len(values) - 1)
                point[column] = values[place]
        left = sorted(self._open)
        far = ((self._rows[left] - point) ** 2).sum(axis=1)
        index = left[int(np.argmin(far))]
        self._open.discard(index)
        self._asked[self._candidates[index]] = trial
        return Proposal(self._candidates[index], "drawn by TPE")

    def tell(self, config: SpecConfig, value: float | None, seen: Seen | None = None) -> None:  # noqa: ARG002  a part of the protocol
        """Report a result."""
        trial = self._asked.pop(config, None)
        if trial is not None and value is None:
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        elif trial is not None:
            self._study.tell(trial, value)


def searched(
    problems: Sequence[Problem], name: str, seeds: range, trials: Callable[[Problem], int]
) -> list[Outcome]:
    """Every problem with every seed."""
    outcomes = []
    for problem in problems:
        most = trials(problem)
        make: str | Make = name
        if name == "tpe":
            make = lambda arms, seed, most=most: TPESampler(arms, seed, most)  # noqa: E731  one line
        outcomes += [replay(problem, make, most, seed) for seed in seeds]
    return outcomes


def right_on_plain(outcome: Outcome) -> bool:
    """Whether the choice says about plain decoding what the truth says, within the margin."""
    truth = outcome.problem.truth
    best = (truth[outcome.problem.best] or 0.0) / (truth[PLAIN] or 1.0)
    if outcome.chosen.is_plain:
        return best <= 1 + MARGIN
    return outcome.vs_plain >= 1 - MARGIN


def show(title: str, by_sampler: dict[str, list[Outcome]]) -> None:
    """A table of samplers."""
    print(f"\n{title}")
    print(
        f"  {'':12}{'trials':>8}{'arms':>8}{'within 2%':>11}{'regret':>9}{'largest':>9}{'plain':>8}"
    )
    for name, outcomes in by_sampler.items():
        figures = summarize(outcomes)
        right = statistics.fmean(map(right_on_plain, outcomes))
        print(
            f"  {name:12}{figures['trials_mean']:>8.1f}{figures['arms_mean']:>8.1f}"
            f"{figures['within_2pct']:>11.1%}{figures['mean_regret']:>9.2%}"
            f"{figures['max_regret']:>9.1%}{right:>8.1%}"
        )
    print("  plain: searches whose verdict on plain decoding is right (within 2 %)")


def aim(name: str, value: float, sign: str, limit: float) -> Figure:
    """A figure and whether it is on the right side of its limit."""
    reached = value >= limit if sign == ">=" else value <= limit
    return Figure(name, value, f"{sign} {limit:.3g}", reached)
