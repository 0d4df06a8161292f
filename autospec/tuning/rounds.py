"""The launches of a confirmation, those of earlier sessions among them."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from autospec.config import PLAIN, SpecConfig
from autospec.errors import AutospecError
from autospec.measurement import Measurement
from autospec.tune.budget import format_duration
from autospec.tune.samplers import Proposal
from autospec.tune.study import Study, Trial
from autospec.tune.trial import Listener, run_trial
from autospec.tuning.answers import AnswerCheck, Ask
from autospec.tuning.arm import Arms

__all__ = ["Rounds", "launches_left", "was_begun"]

_REASON: Final = re.compile(
    r"round \d+, launch (?P<launch>\d+) of (?P<of>\d+) to confirm (?P<names>.*)"
)


@dataclass(frozen=True, slots=True)
class _Step:
    """One launch: what runs, its first repeat and passes, what it is asked, and why."""

    config: SpecConfig
    first: int
    passes: int
    ask: Ask | None
    reason: str


def was_begun(study: Study, finalists: Sequence[SpecConfig]) -> bool:
    """Whether an earlier session made launches to confirm exactly these."""
    told = _read_reasons(study)
    return any(match["names"] == _names(finalists) for match in told)


def launches_left(study: Study) -> int | None:
    """Launches that the last round of an earlier session lacks; None where none was begun."""
    told = _read_reasons(study)
    return int(told[-1]["of"]) - int(told[-1]["launch"]) if told else None


class Rounds:
    """Makes round after round: plain decoding, each finalist, plain decoding.

    Args:
        study: where the launches are recorded as trials of kind ``confirm``.
        arms: measures a configuration.
        finalists: what is confirmed.
        repeats: passes at each load and launch of plain; a finalist makes twice as many.
        concurrency: at which greedy answers are collected.
        listener: told of each launch.

    Attributes:
        check: the comparison of greedy answers, made in the first round.
        lost: finalist -> why it could not be measured.
    """

    def __init__(
        self,
        study: Study,
        arms: Arms,
        finalists: Sequence[SpecConfig],
        *,
        repeats: int,
        concurrency: int,
        listener: Listener,
    ) -> None:
        self._study = study
        self._arms = arms
        self._names = _names(finalists)
        self._repeats = repeats
        self._listener = listener
        self._launches: dict[SpecConfig, list[Measurement]] = {PLAIN: []}
        self.check = AnswerCheck(study.folder, finalists, concurrency)
        self.lost: dict[SpecConfig, str] = {}

    def plain(self) -> Measurement:
        """All launches of plain decoding as one measurement."""
        return _merge(self._launches[PLAIN])

    def finalists(self) -> tuple[Measurement, ...]:
        """The same of each finalist that was measured."""
        return tuple(
            _merge(launches) for config, launches in self._launches.items() if not config.is_plain
        )

    def exceeds_budget(
        self, number: int, running: Sequence[SpecConfig], budget_s: float | None
    ) -> str:
        """Why the budget does not hold this round, or nothing; one that was begun is finished."""
        first = self._reason(number, 1, len(running))
        if budget_s is None or self._finished(PLAIN, first):
            return ""
        made = [launch for config in (PLAIN, *running) for launch in self._launches[config]]
        needed_s = sum(launch.duration_s for launch in made) / (number - 1)
        left_s = max(0.0, budget_s - self._study.seconds_used())
        if needed_s <= left_s:
            return ""
        return (
            f"a further round needs {format_duration(needed_s)}, the budget has "
            f"{format_duration(left_s)} left"
        )

    def make(self, number: int, running: Sequence[SpecConfig]) -> str:
        """Make the launches of a round that are not made yet.

        A finalist that fails is ``lost``, and the round goes on without it while there is another.

        Args:
            number: of the round, from 1.
            running: the finalists that take part.

        Returns:
            What went wrong with plain decoding, or nothing.
        """
        made: list[tuple[SpecConfig, Measurement]] = []
        for step in self._steps(number, running):
            if step.config.is_plain and made and set(running) <= self.lost.keys():
                return ""
            found = self._launch(step)
            if not isinstance(found, AutospecError):
                made.append((step.config, found))
                continue
            failure = f"{step.config.label} could not be confirmed: {found}"
            if step.config.is_plain:
                return failure
            self.lost[step.config] = failure
        self.check.keep()
        for config, measured in made:
            self._launches.setdefault(config, []).append(measured)
        return ""

    def _steps(self, number: int, running: Sequence[SpecConfig]) -> tuple[_Step, ...]:
        """A round's launches in order; answers are asked for in the first round."""
        first, repeats = 2 * self._repeats * (number - 1), self._repeats
        order = list(running) if number % 2 else list(reversed(running))
        asks = [self.check.of_plain(), *map(self.check.of, order), self.check.comparison()]
        if number > 1:
            asks = [None] * len(asks)
        passes = [
            (PLAIN, first, repeats),
            *((config, first, 2 * repeats) for config in order),
            (PLAIN, first + repeats, repeats),
        ]
        return tuple(
            _Step(*each, ask, self._reason(number, place, len(running)))
            for place, (each, ask) in enumerate(zip(passes, asks, strict=True), start=1)
        )

    def _launch(self, step: _Step) -> Measurement | AutospecError:
        kind, reason = "confirm", step.reason
        measure: Callable[..., Measurement] = partial(
            self._arms.measure, part="confirm", first_repeat=step.first, repeats=step.passes
        )
        done = self._finished(step.config, reason)
        if done is not None and step.ask is None:
            return self._study.measurement(done.id)
        if done is not None:
            # An earlier session measured it, and took its answers along.
            kind, measure = "check", self._arms.answer
            reason = f"its answers once more, to compare them ({reason})"
        trial, failure = run_trial(
            self._study,
            kind,
            Proposal(step.config, reason),
            partial(measure, ask=step.ask),
            evaluate=lambda _measurement: None,
            clock=time.monotonic,
            listener=self._listener,
        )
        return failure or self._study.measurement((done or trial).id)

    def _reason(self, number: int, launch: int, running: int) -> str:
        return f"round {number}, launch {launch} of {running + 2} to confirm {self._names}"

    def _finished(self, config: SpecConfig, reason: str) -> Trial | None:
        """The trial of an earlier session that was this very launch."""
        return next(
            (
                trial
                for trial in reversed(self._study.trials("confirm"))
                if (trial.state, trial.config, trial.reason) == ("complete", config, reason)
            ),
            None,
        )


def _names(finalists: Sequence[SpecConfig]) -> str:
    return ", ".join(map(_brief, finalists))


def _brief(config: SpecConfig) -> str:
    """The text form with the draft's folder name in place of its path: a person reads it."""
    draft = config.draft_model
    return config.label + (f" draft={Path(draft).name}" if draft else "")


def _read_reasons(study: Study) -> list[re.Match[str]]:
    """What the reasons of all launches made so far say, in order."""
    made = [trial for trial in study.trials("confirm") if trial.state == "complete"]
    return [found for trial in made if (found := _REASON.fullmatch(trial.reason))]


def _merge(launches: Sequence[Measurement]) -> Measurement:
    """Several launches of one configuration as one measurement."""
    return dataclasses.replace(
        launches[0],
        runs=tuple(run for launch in launches for run in launch.runs),
        duration_s=sum(launch.duration_s for launch in launches),
        warnings=tuple(dict.fromkeys(w for launch in launches for w in launch.warnings)),
    )
