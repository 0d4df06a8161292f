"""Search problems whose answer is known: what a sampler is replayed on. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, runtime_checkable

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError
from autospec.tune.samplers import LEAST_GAIN, Sampler, make_sampler
from autospec.tune.seen import Seen

__all__ = ["NEAR", "Outcome", "Problem", "Result", "replay", "summarize"]

#: A choice within this of the best counts as found.
NEAR: Final = 0.02


@dataclass(frozen=True, slots=True)
class Result:
    """What a trial reveals: its throughput over any fixed figure, None where it failed."""

    throughput: float | None
    seen: Seen | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A table of arms of which the best is to be found.

    Attributes:
        name: of the problem within its table.
        truth: arm -> true throughput in tokens/s, None where it cannot run; plain is among them.
        reveal: (arm, seed) -> what a trial shows.
        labels: arm -> its name in the table, where that is another.
    """

    name: str
    truth: Mapping[SpecConfig, float | None]
    reveal: Callable[[SpecConfig, int], Result] = field(repr=False, compare=False)
    labels: Mapping[SpecConfig, str] = field(default_factory=dict)

    @property
    def best(self) -> SpecConfig:
        """The arm with the highest true throughput."""
        return max(self.truth, key=lambda arm: self.truth[arm] or 0.0)

    def label(self, arm: SpecConfig) -> str:
        """The arm's name."""
        return self.labels.get(arm, arm.label)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One search.

    Attributes:
        problem: what was searched.
        seed: of the sampler and of the noise.
        trials: arms tried, failed ones too.
        chosen: the arm it ends with.
        asked: the arms in the order asked for, with the reasons.
    """

    problem: Problem
    seed: int
    trials: int
    chosen: SpecConfig
    asked: tuple[tuple[SpecConfig, str], ...] = ()

    @property
    def regret(self) -> float:
        """Share of the best arm's throughput that the chosen one lacks."""
        truth = self.problem.truth
        return 1.0 - (truth[self.chosen] or 0.0) / (truth[self.problem.best] or math.inf)

    @property
    def vs_plain(self) -> float:
        """Throughput of the chosen arm over plain decoding's."""
        return (self.problem.truth[self.chosen] or 0.0) / (self.problem.truth[PLAIN] or math.inf)


@runtime_checkable
class Chooses(Protocol):
    """A sampler that has a better way to choose than the highest value told."""

    def best(self) -> SpecConfig | None:
        """The best of what it was told."""
        ...


def num_trials(problem: Problem, trials: int | None, fraction: float | None) -> int:
    """Trials allowed: a number, or a share of the arms rounded down; at least one.

    Raises:
        ConfigError: neither or both are given, or one allows nothing.
    """
    if (trials is None) == (fraction is None):
        raise ConfigError("give one of a number of trials and a fraction of the arms")
    if trials is not None:
        if trials < 1:
            raise ConfigError(f"the number of trials is {trials}, must be at least 1")
        return trials
    if fraction is None or not 0 < fraction <= 1:
        raise ConfigError(f"the fraction is {fraction}, must be above 0 and at most 1")
    return max(1, math.floor(fraction * len(problem.truth) + 1e-9))


def replay(
    problem: Problem,
    sampler: str | Callable[[Sequence[SpecConfig], int], Sampler],
    trials: int,
    seed: int,
) -> Outcome:
    """Search a problem.

    The choice is the best value told, or the sampler's own (``Chooses``); plain decoding where
    nothing ran.

    Args:
        problem: what to search.
        sampler: its name, or what makes one.
        trials: as many at most; the sampler may be done before.
        seed: of the sampler and of the noise.
    """
    arms = sorted(problem.truth)
    search = make_sampler(sampler, arms, seed) if isinstance(sampler, str) else sampler(arms, seed)
    values: dict[SpecConfig, float] = {}
    asked: list[tuple[SpecConfig, str]] = []
    for _ in range(trials):
        proposal = search.ask()
        if proposal is None or (proposal.gain is not None and proposal.gain < LEAST_GAIN):
            break
        result = problem.reveal(proposal.config, seed)
        value = None if result.throughput is None else math.log(result.throughput)
        if value is not None:
            values[proposal.config] = value
        search.tell(proposal.config, value, result.seen)
        asked.append((proposal.config, proposal.reason))
    chosen = search.best() if isinstance(search, Chooses) else None
    if chosen is None:
        chosen = max(values, key=lambda arm: values[arm], default=PLAIN)
    return Outcome(problem, seed, len(asked), chosen, tuple(asked))


def summarize(outcomes: Sequence[Outcome]) -> dict[str, float | int]:
    """Figures over problems and seeds; shares are fractions."""
    regrets = [outcome.regret for outcome in outcomes]
    return {
        "problems": len({id(outcome.problem) for outcome in outcomes}),
        "seeds": len({outcome.seed for outcome in outcomes}),
        "trials_mean": statistics.fmean(outcome.trials for outcome in outcomes),
        "arms_mean": statistics.fmean(len(outcome.problem.truth) for outcome in outcomes),
        "within_2pct": statistics.fmean(regret <= NEAR for regret in regrets),
        "mean_regret": statistics.fmean(regrets),
        "max_regret": max(regrets),
        "least_vs_plain": min(outcome.vs_plain for outcome in outcomes),
    }
