"""The confirmation: the finalist against plain decoding on prompts the search never saw.

It goes in rounds of three launches in the order A B B A: plain, the finalist with twice the passes,
plain. A machine that grows steadily slower or faster treats both arms alike. After each round a
sequential rule says whether the verdict is clear; if it is not, another round follows.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autospec.config import PLAIN, SpecConfig
from autospec.errors import AutospecError
from autospec.fidelity import Lossless
from autospec.measure.sequential import Look, StoppingRule
from autospec.measurement import Measurement
from autospec.tune.budget import format_duration
from autospec.tune.samplers import Proposal
from autospec.tune.study import Study, Trial
from autospec.tune.trial import Listener, run_trial
from autospec.tuning.answers import AnswerCheck, Ask
from autospec.tuning.arm import Arms

__all__ = ["ConfirmPlan", "Confirmation", "confirm"]


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """How much a confirmation may do.

    Attributes:
        repeats: passes at each load and launch of plain; the finalist makes twice as many.
        concurrencies: the loads.
        rounds: at most.
        noise_floor: of the rule, an absolute log ratio.
        budget_s: seconds that the whole study may use; None for no limit. The first round is
            made whatever it says.
    """

    repeats: int
    concurrencies: tuple[int, ...]
    rounds: int = 3
    noise_floor: float = 0.0
    budget_s: float | None = None

    def rule(self) -> StoppingRule:
        """When to stop: the rule's own cap, or what the rounds hold if that is less."""
        rule = StoppingRule()
        return dataclasses.replace(rule, max_pairs=2 * self.repeats * self.most_rounds)

    @property
    def most_rounds(self) -> int:
        """Rounds that the rule's cap on pairs leaves of those asked for, at least one."""
        return max(1, min(self.rounds, StoppingRule().max_pairs // (2 * self.repeats)))


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Both arms on the confirm part, as many passes each; or why there is none.

    Attributes:
        plain: all launches of plain decoding as one measurement.
        finalist: all launches of the finalist.
        look: what the rule says of them.
        lossless: whether the finalist's greedy answers are those of plain decoding.
        rounds: made.
        unfinished: why there was no further round though the verdict was not clear, or nothing.
        failure: why there is no confirmation at all, or nothing.
    """

    plain: Measurement | None = None
    finalist: Measurement | None = None
    look: Look | None = None
    lossless: Lossless | None = None
    rounds: int = 0
    unfinished: str = ""
    failure: str = ""


def confirm(
    study: Study, arms: Arms, finalist: SpecConfig, plan: ConfirmPlan, listener: Listener
) -> Confirmation:
    """Measure both arms until the verdict is clear, going on where an earlier session stopped.

    Args:
        study: where the launches are recorded as trials of kind ``confirm``.
        arms: measures a configuration.
        finalist: the best of the search.
        plan: passes, loads and limits.
        listener: told of each launch.

    Raises:
        AutospecError: the study cannot be written, or no server can be started at all.
        KeyboardInterrupt: after putting the running trial back.
    """
    rounds = _Rounds(study, arms, finalist, plan, listener)
    found = Confirmation()
    for number in range(1, plan.most_rounds + 1):
        if number > 1 and (too_long := rounds.exceeds_budget(number)):
            return dataclasses.replace(found, unfinished=too_long)
        failure = rounds.make(number)
        if failure and number == 1:
            return Confirmation(failure=failure)
        if failure:
            return dataclasses.replace(found, unfinished=failure)
        found = rounds.judge(number)
        if found.look is not None and found.look.stop:
            break
    return found


class _Rounds:
    """The launches of one confirmation, those of earlier sessions among them."""

    def __init__(
        self,
        study: Study,
        arms: Arms,
        finalist: SpecConfig,
        plan: ConfirmPlan,
        listener: Listener,
    ) -> None:
        self._study = study
        self._arms = arms
        self._finalist = finalist
        self._plan = plan
        self._listener = listener
        self._check = AnswerCheck(study.folder, finalist, max(plan.concurrencies))
        self._plain: list[Measurement] = []
        self._best: list[Measurement] = []

    def exceeds_budget(self, number: int) -> str:
        """Why the budget does not hold this round, or nothing; one that was begun is finished."""
        if self._plan.budget_s is None or self._finished(PLAIN, self._reason(number, 1)):
            return ""
        needed_s = sum(launch.duration_s for launch in (*self._plain, *self._best)) / (number - 1)
        left_s = max(0.0, self._plan.budget_s - self._study.seconds_used())
        if needed_s <= left_s:
            return ""
        return (
            f"a further round needs {format_duration(needed_s)}, the budget has "
            f"{format_duration(left_s)} left"
        )

    def make(self, number: int) -> str:
        """Make the launches of a round that are not made yet; gives what went wrong."""
        repeats = self._plan.repeats
        first = 2 * repeats * (number - 1)
        order = (
            (PLAIN, first, repeats),
            (self._finalist, first, 2 * repeats),
            (PLAIN, first + repeats, repeats),
        )
        asks = self._check.steps() if number == 1 else (None, None, None)
        results: list[Measurement] = []
        for launch, ((config, first_repeat, passes), ask) in enumerate(
            zip(order, asks, strict=True), start=1
        ):
            measure = partial(
                self._arms.measure, part="confirm", first_repeat=first_repeat, repeats=passes
            )
            result = self._launch(config, self._reason(number, launch), measure, ask)
            if isinstance(result, AutospecError):
                return f"{config.label} could not be confirmed: {result}"
            results.append(result)
        self._check.keep()
        self._plain += [results[0], results[2]]
        self._best.append(results[1])
        return ""

    def judge(self, rounds: int) -> Confirmation:
        """What all rounds so far say."""
        plain, finalist = _merge(self._plain), _merge(self._best)
        levels = {
            level: (finalist.throughputs(level, "confirm"), plain.throughputs(level, "confirm"))
            for level in self._plan.concurrencies
        }
        look = self._plan.rule().look_levels(levels, noise_floor=self._plan.noise_floor)
        return Confirmation(plain, finalist, look, self._check.result, rounds)

    def _launch(
        self,
        config: SpecConfig,
        reason: str,
        measure: Callable[..., Measurement],
        ask: Ask | None,
    ) -> Measurement | AutospecError:
        kind = "confirm"
        done = self._finished(config, reason)
        if done is not None and ask is None:
            return self._study.measurement(done.id)
        if done is not None:
            # An earlier session measured it, and took its answers along.
            kind, measure = "check", self._arms.answer
            reason = f"its answers once more, to compare them ({reason})"
        trial, failure = run_trial(
            self._study,
            kind,
            Proposal(config, reason),
            partial(measure, ask=ask),
            evaluate=lambda _measurement: None,
            clock=time.monotonic,
            listener=self._listener,
        )
        return failure or self._study.measurement((done or trial).id)

    def _reason(self, number: int, launch: int) -> str:
        return f"round {number}, launch {launch} of 3 to confirm {self._finalist}"

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


def _merge(launches: list[Measurement]) -> Measurement:
    """Several launches of one configuration as one measurement."""
    return dataclasses.replace(
        launches[0],
        runs=tuple(run for launch in launches for run in launch.runs),
        duration_s=sum(launch.duration_s for launch in launches),
        warnings=tuple(dict.fromkeys(w for launch in launches for w in launch.warnings)),
    )
