"""``sglang-adaptive``: the rule that SGLang 0.5.23 has built in, from its description. A baseline.

For each range of batch sizes a slot of candidate depths and a moving average of the mean number of
correct drafts. Every few batches: down to the candidate below while the average is at most half a
draft under it, else up while it is more than the depth less half a draft. The average stands still
at depth 0, and from there the next candidate is always tried again at the next turn. Step times
play no part.
"""

from __future__ import annotations

from dataclasses import dataclass

from autospec.control.policy import Decision, Observation, Setting
from autospec.errors import ConfigError
from autospec.evidence import require

__all__ = ["SglangAdaptive", "Slot"]


@dataclass(frozen=True, slots=True)
class Slot:
    """The candidates of batches from one size upwards, to the next slot's.

    Attributes:
        candidate_steps: depths, rising.
        down_hysteresis: added to the bound for going down.
        up_hysteresis: added to the bound for going up.
    """

    candidate_steps: tuple[int, ...]
    down_hysteresis: float = 0.0
    up_hysteresis: float = 0.0

    def __post_init__(self) -> None:
        steps = self.candidate_steps
        rises = bool(steps) and steps[0] >= 0 and list(steps) == sorted(set(steps))
        require(rises, "candidate_steps", list(steps), "whole numbers from 0 up that rise")


#: SGLang's own, by least batch size.
DEFAULT_SLOTS = {
    1: Slot((1, 3, 5, 7), down_hysteresis=-0.25),
    8: Slot((0, 1, 3)),
    32: Slot((0, 1)),
    64: Slot((0,)),
}


class SglangAdaptive:
    """Moving average of correct drafts, against fixed bounds."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """What a policy file may give. Candidates that the server cannot run are left out.

        Attributes:
            ema_alpha: weight of the newest batch in the moving average.
            update_interval: batches between two decisions.
            warmup_batches: batches before the first.
            initial_depth: where every slot begins, or at its greatest candidate below.
            slots: least batch size -> candidates; SGLang's own by default.
        """

        ema_alpha: float = 0.2
        update_interval: int = 5
        warmup_batches: int = 10
        initial_depth: int = 3
        slots: dict[int, Slot] | None = None

        def __post_init__(self) -> None:
            require(0 < self.ema_alpha <= 1, "ema_alpha", self.ema_alpha, "above 0, at most 1")
            require(self.update_interval >= 1, "update_interval", self.update_interval, ">= 1")
            require(self.warmup_batches >= 0, "warmup_batches", self.warmup_batches, ">= 0")
            require(self.initial_depth >= 0, "initial_depth", self.initial_depth, ">= 0")
            require(self.slots is None or bool(self.slots), "slots", "empty", "one or more")

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        slots = DEFAULT_SLOTS if parameters.slots is None else parameters.slots
        self._slots = {
            least: _Ladder(slot, parameters, setting)
            for least, slot in sorted(slots.items(), reverse=True)
        }
        self._smallest = min(slots)
        self._ran = self._slots[self._smallest]

    def decide(self, observation: Observation) -> Decision:
        """The depth of the slot that this batch falls into."""
        self._ran.learn(observation)
        size = max(observation.batch_size, self._smallest)
        least = next(least for least in self._slots if least <= size)
        self._ran = self._slots[least]
        return self._ran.decision


class _Ladder:
    """One slot at work."""

    def __init__(self, slot: Slot, parameters: SglangAdaptive.Parameters, setting: Setting) -> None:
        self._slot = slot
        self._parameters = parameters
        self._steps = [step for step in slot.candidate_steps if step in setting.depths]
        if not self._steps:
            raise ConfigError(
                f"candidate_steps are {list(slot.candidate_steps)}, "
                f"the server can run {list(setting.depths)}"
            )
        begin = [i for i, step in enumerate(self._steps) if step <= parameters.initial_depth]
        self._at = begin[-1] if begin else 0
        self._average: float | None = None
        self._batches = 0
        self.decision = self._say()

    def learn(self, observation: Observation) -> None:
        """Count a batch of this slot, and move at every turn."""
        parameters = self._parameters
        correct = observation.correct
        if correct:
            mean = sum(correct) / len(correct)
            old = self._average
            alpha = parameters.ema_alpha
            self._average = mean if old is None else (1 - alpha) * old + alpha * mean
        self._batches += 1
        past = self._batches - parameters.warmup_batches
        if past >= 0 and past % parameters.update_interval == 0:
            self._move()
            self.decision = self._say()

    def _move(self) -> None:
        steps, average = self._steps, self._average or 0.0
        before = self._at
        while self._at > 0 and average <= self._lower(steps[self._at - 1]):
            self._at -= 1
        if self._at != before:
            return
        if steps[self._at] == 0:
            self._at = min(self._at + 1, len(steps) - 1)
            return
        while self._at < len(steps) - 1 and average > self._upper(steps[self._at]):
            self._at += 1

    def _lower(self, below: int) -> float:
        return (below - 0.5 if below else 0.5) + self._slot.down_hysteresis

    def _upper(self, step: int) -> float:
        return step - 0.5 + self._slot.up_hysteresis

    def _say(self) -> Decision:
        average = "unknown" if self._average is None else f"{self._average:.2f}"
        return Decision(self._steps[self._at], f"{average} correct drafts on average")
