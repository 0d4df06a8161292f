"""Racing: a candidate that is clearly behind is stopped before its passes are all made.

After each repeat at all loads the candidate is compared, prompt for prompt, with the best one so
far, or with plain decoding while none is better. It is stopped when the whole of its interval lies
below. The looks share the chance of a wrong stop (Bonferroni), so a candidate that is as good as
the one it runs against is stopped with a probability of at most ``ALPHA``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from autospec.breakdown import Stopped
from autospec.config import PLAIN, SpecConfig
from autospec.measure import stats
from autospec.measure.harness import Until
from autospec.measurement import Measurement, Run
from autospec.tune.objective import Goal
from autospec.tune.study import Study, Trial
from autospec.tuning.noise import known_noise
from autospec.tuning.points import interval
from autospec.tuning.pooled import Spread, blocks

__all__ = ["ALPHA", "Race"]

#: Chance that an equal is stopped, over all looks at it.
ALPHA: Final = 0.05


class Measure(Protocol):
    """Measures a configuration on the tune part, all passes or until told to stop."""

    def __call__(self, config: SpecConfig, /, *, until: Until | None = None) -> Measurement:
        """The measurement; ``stopped`` says why it is not whole."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a trial without reading it again.

    Attributes:
        trial: as the study has it.
        arm: its blocks against plain decoding.
    """

    trial: Trial
    arm: tuple[float, ...]


class Race:
    """Measures candidates against the best so far.

    Args:
        study: whose trials the candidates are compared with.
        measure: makes the passes.
        goal: what is compared.
        repeats: passes at each load of a candidate that is not stopped.
    """

    def __init__(self, study: Study, measure: Measure, goal: Goal, repeats: int) -> None:
        self._study = study
        self._measure = measure
        self._goal = goal
        self._repeats = repeats
        self._known: dict[int, _Known] = {}
        self._baseline: Measurement | None = None
        self._noise_floor: float | None = None

    def measure(self, config: SpecConfig) -> Measurement:
        """Measure a configuration; one that falls behind is stopped, plain decoding never is."""
        baseline = None if config.is_plain else self._find_baseline()
        if baseline is None:
            return self._measure(config)
        leader = self._leader()
        other = baseline if leader is None else self._study.measurement(leader.trial.id)
        return self._measure(config, until=partial(self._look, config, other))

    def stopped(self) -> tuple[Stopped, ...]:
        """The candidates that were stopped, best first, each against plain decoding.

        Nothing before plain decoding was measured.
        """
        self._read_trials()
        known = [item for item in self._known.values() if item.trial.state == "pruned"]
        spread = Spread.of(item.arm for item in self._known.values())
        found = [
            Stopped(
                config=item.trial.config,
                repeats=len(item.arm),
                vs_plain=interval(spread.ratio(item.arm, self._level, self._floor())),
            )
            for item in known
            if item.arm
        ]
        return tuple(sorted(found, key=lambda row: (-row.vs_plain.value, row.config)))

    @property
    def _level(self) -> float:
        """Chance of a wrong end, both sides, at one look."""
        return 2 * ALPHA / max(1, self._repeats - 1)

    def _look(self, config: SpecConfig, other: Measurement, runs: tuple[Run, ...]) -> str:
        """Why a candidate need not go on."""
        arm = blocks(Measurement(config, runs, 0.0, 0.0), other, self._goal.figure)
        if not arm:
            return ""
        spread = Spread.of([*(item.arm for item in self._known.values()), arm])
        ratio = spread.ratio(arm, self._level, self._floor())
        if ratio.high >= 1:
            return ""
        return (
            f"stopped after {len(arm)} of {self._repeats} repeats: {_shown(ratio)} of "
            f"{other.config.label}'s {self._goal.quantity}"
        )

    def _leader(self) -> _Known | None:
        """The best complete candidate, if it is better than plain decoding."""
        self._read_trials()
        better = [
            item
            for item in self._known.values()
            if item.trial.state == "complete" and (item.trial.value or 0.0) > 0
        ]
        return max(better, key=lambda item: item.trial.value or 0.0, default=None)

    def _read_trials(self) -> None:
        """Read each candidate's measurement once: measurements are large."""
        baseline = self._find_baseline()
        if baseline is None:
            return
        for trial in self._study.trials("tune"):
            measured = trial.state in ("complete", "pruned") and not trial.config.is_plain
            if measured and trial.id not in self._known:
                found = blocks(self._study.measurement(trial.id), baseline, self._goal.figure)
                self._known[trial.id] = _Known(trial, tuple(found))

    def _find_baseline(self) -> Measurement | None:
        if self._baseline is None:
            plain = [t for t in self._study.trials("tune") if t.config == PLAIN]
            done = [trial for trial in plain if trial.state == "complete"]
            self._baseline = self._study.measurement(done[-1].id) if done else None
        return self._baseline

    def _floor(self) -> float:
        if self._noise_floor is None:
            baseline = self._find_baseline()
            noise = known_noise(self._study, baseline, self._goal.figure) if baseline else None
            self._noise_floor = noise.floor if noise else 0.0
        return self._noise_floor


def _shown(ratio: stats.Ratio) -> str:
    return f"{ratio.value:.2f}x ({ratio.low:.2f} to {ratio.high:.2f})"
