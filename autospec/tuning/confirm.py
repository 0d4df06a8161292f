"""The confirmation: the finalists against plain decoding on prompts the search never saw.

It goes in rounds: plain, each finalist with twice the passes, plain. A machine that grows steadily
slower or faster treats plain and a single finalist alike; of several, the order turns from round to
round. After each round a sequential rule says whether the verdict is clear; if it is not, another
round follows without those that are clearly behind. The finalists share the rule's chance of a
false verdict, so its intervals hold for whichever of them is chosen.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from autospec.config import SpecConfig
from autospec.errors import ConfigError
from autospec.fidelity import Lossless
from autospec.measure.sequential import Look, StoppingRule
from autospec.measurement import Measurement
from autospec.tune.objective import Figure, figures, throughput
from autospec.tune.study import Study
from autospec.tune.trial import Listener
from autospec.tuning.arm import Arms
from autospec.tuning.rounds import Rounds

__all__ = ["ConfirmPlan", "Confirmation", "Finalist", "confirm"]


@dataclass(frozen=True, slots=True)
class ConfirmPlan:
    """How much a confirmation may do.

    Attributes:
        repeats: passes at each load and launch of plain; a finalist makes twice as many.
        concurrencies: the loads.
        rounds: at most.
        noise_floor: of the rule, an absolute log ratio.
        budget_s: seconds that the whole study may use; None for no limit. The first round is
            made whatever it says.
        allow_lossy: whether a finalist whose greedy answers differ may be deployed.
        figure: of a pass, which the verdict is about.
    """

    repeats: int
    concurrencies: tuple[int, ...]
    rounds: int = 3
    noise_floor: float = 0.0
    budget_s: float | None = None
    allow_lossy: bool = False
    figure: Figure = throughput

    def rule(self, finalists: int = 1) -> StoppingRule:
        """When to stop: the rule's own cap, or what the rounds hold if that is less."""
        rule = StoppingRule()
        return dataclasses.replace(
            rule, max_pairs=2 * self.repeats * self.most_rounds, alpha=rule.alpha / finalists
        )

    @property
    def most_rounds(self) -> int:
        """Rounds that the rule's cap on pairs leaves of those asked for, at least one."""
        return max(1, min(self.rounds, StoppingRule().max_pairs // (2 * self.repeats)))

    def refuses(self, lossless: Lossless | None) -> bool:
        """Whether a finalist may not be deployed, for its greedy answers differ."""
        return lossless is not None and lossless.decision == "differs" and not self.allow_lossy


@dataclass(frozen=True, slots=True)
class Finalist:
    """One finalist on the confirm part.

    Attributes:
        measurement: all its launches as one measurement.
        look: what the rule says of it against plain decoding's passes over the same prompts.
        lossless: whether its greedy answers are those of plain decoding.
    """

    measurement: Measurement
    look: Look
    lossless: Lossless | None = None

    @property
    def config(self) -> SpecConfig:
        """What ran."""
        return self.measurement.config


@dataclass(frozen=True, slots=True)
class Confirmation:
    """All arms on the confirm part; or why there is no confirmation.

    Attributes:
        plain: all launches of plain decoding as one measurement.
        finalists: best first; those that may not be deployed come after those that may.
        rounds: made.
        unfinished: why there was no further round though the verdict was not clear, or nothing.
        failure: why there is no confirmation at all, or nothing.
        lost: one line for each finalist that could not be measured.
    """

    plain: Measurement | None = None
    finalists: tuple[Finalist, ...] = ()
    rounds: int = 0
    unfinished: str = ""
    failure: str = ""
    lost: tuple[str, ...] = ()

    @property
    def best(self) -> Finalist | None:
        """The finalist that the verdict is about."""
        return self.finalists[0] if self.finalists else None


def confirm(
    study: Study,
    arms: Arms,
    finalists: Sequence[SpecConfig],
    plan: ConfirmPlan,
    listener: Listener,
) -> Confirmation:
    """Measure all arms until the verdict is clear, going on where an earlier session stopped.

    Args:
        study: where the launches are recorded as trials of kind ``confirm``.
        arms: measures a configuration.
        finalists: the best of the search, at least one.
        plan: passes, loads and limits.
        listener: told of each launch.

    Raises:
        ConfigError: there is no finalist.
        AutospecError: the study cannot be written, or no server can be started at all.
        KeyboardInterrupt: after putting the running trial back.
    """
    if not finalists:
        raise ConfigError("no finalist to confirm, must be at least one")
    rounds = Rounds(
        study,
        arms,
        finalists,
        repeats=plan.repeats,
        concurrency=max(plan.concurrencies),
        listener=listener,
    )
    found = Confirmation()
    running = list(finalists)
    for number in range(1, plan.most_rounds + 1):
        if number > 1 and (too_long := rounds.exceeds_budget(number, running, plan.budget_s)):
            return dataclasses.replace(found, unfinished=too_long)
        failure = rounds.make(number, running)
        running = [config for config in running if config not in rounds.lost]
        if failure or not running:
            return _broken_off(found, failure or "; ".join(rounds.lost.values()))
        found = _judge(rounds, plan, len(finalists), number)
        if found.best is None or found.best.look.stop:
            break
        running = [c for c in running if _may_win(c, found, plan, len(finalists))]
    return found


def _broken_off(found: Confirmation, failure: str) -> Confirmation:
    """What stands when a round fails: the rounds before it, if there were any."""
    if found.rounds == 0:
        return Confirmation(failure=failure)
    return dataclasses.replace(found, unfinished=failure)


def _judge(rounds: Rounds, plan: ConfirmPlan, finalists: int, number: int) -> Confirmation:
    """What all rounds so far say."""
    plain = rounds.plain()
    judged = [
        Finalist(
            measured,
            _look(measured, plain, plan, finalists),
            rounds.check.results.get(measured.config),
        )
        for measured in rounds.finalists()
    ]
    judged.sort(key=lambda f: (plan.refuses(f.lossless), -f.look.ratio.value, f.config))
    return Confirmation(plain, tuple(judged), number, lost=tuple(rounds.lost.values()))


def _look(a: Measurement, b: Measurement, plan: ConfirmPlan, finalists: int) -> Look:
    """Compare two arms over the repeats that both made."""
    levels: dict[int, tuple[list[float], list[float]]] = {}
    for level in plan.concurrencies:
        ours, theirs = (figures(arm, level, "confirm", plan.figure) for arm in (a, b))
        both = sorted(ours.keys() & theirs.keys())
        levels[level] = [ours[n] for n in both], [theirs[n] for n in both]
    return plan.rule(finalists).look_levels(levels, noise_floor=plan.noise_floor)


def _may_win(config: SpecConfig, found: Confirmation, plan: ConfirmPlan, finalists: int) -> bool:
    """Whether a further round may show a finalist to be the one to deploy."""
    by_config = {finalist.config: finalist for finalist in found.finalists}
    if found.best is None or config == found.best.config:
        return True
    if plan.refuses(by_config[config].lossless):
        return False
    look = _look(by_config[config].measurement, found.best.measurement, plan, finalists)
    return look.ratio.high >= 1
