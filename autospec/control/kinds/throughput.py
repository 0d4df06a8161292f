"""``throughput``: the depth that makes the most tokens a second; plain decoding where none pays.

A depth's worth is its accept length over its break-even accept length, the share of plain
decoding's throughput that it makes at this batch size; plain decoding's is 1. Accept lengths come
from one running estimate (``belief``), break-evens from measured step times.

* **Changing.** What another choice would have brought more adds up step by step, less an
  indifference, and never falls below 0. A change is made when the sum passes what changes have to
  promise (``Patience``): soon where much is at stake, never where nothing is.
* **Falling back.** A CUSUM test tells at once that acceptance fell; the estimate then begins anew
  with what came after. Unless a depth still pays clearly, plain decoding follows.
* **Returning.** In plain decoding single steps are run at the depth that tells most for its price.
  What they may cost is a share of all steps. Promising ones are followed up at once, on credit,
  until the sum for a return passes, or the evidence is gone.
  Where drafts are shown that cost nothing (``Observation.shadow``) they tell it instead.
* **Deeper.** Positions beyond the depth in use are looked at now and then, on a budget of its own.

Nothing here reads a clock or draws a random number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autospec.control.belief import Belief
from autospec.control.detectors import Budget, Patience
from autospec.control.policy import Decision, Observation, Setting
from autospec.errors import ConfigError
from autospec.evidence import require

__all__ = ["Throughput"]

#: Steps and requests before speculation may be given up for the first time, or moves are trusted.
SETTLE_IN_STEPS = 24
TRUST_REQUESTS = 8
#: Speculative steps without a change before a fall counts as a collapse.
COLLAPSE_STEPS = 10
#: What a depth must still be worth after a collapse.
CLEARLY_PAYS = 1.04
#: The least price of a step run to learn from, in plain steps.
LEAST_PRICE = 0.02
#: Steps between two thoughts of looking deeper.
LOOK_EVERY = 4
#: Plain steps after the latest shadow during which another is waited for.
SHADOW_STEPS = 16
#: Ratio of batch sizes from which on waiting begins anew.
OTHER_BATCH = 1.4


class Throughput:
    """Expected tokens per second, with break-even from step times."""

    @dataclass(frozen=True, slots=True)
    class Parameters:
        """What a policy file may give. Gains are relative; sums of gains are in steps.

        Attributes:
            depths: candidates, of which those count that the server can run; all that it can run
                by default.
            memory_steps: steps that the estimate of acceptance rests on, at most.
            memory_requests: requests that it rests on, at most.
            shift_ratio: by which the share of right drafts falls in the change that is tested for,
                or that of wrong ones.
            fall_alarm: evidence in nats that acceptance fell; false alarms come once in its
                exponential steps or more rarely.
            rise_alarm: the same for a rise in steps run to learn from.
            follow_up: evidence in nats for a rise from which on another step follows at once.
            indifference: gain that is not worth going to plain decoding, or back.
            patience: sum of gains that such a change has to promise, at first and at least.
            max_patience: the same at most.
            depth_indifference: gain that is not worth another depth.
            depth_patience: sum of gains that another depth has to promise at first and at least.
            caution: standard errors given to what is in use, and taken from what would return.
            probe_share: share of throughput that may be given up in plain decoding to learn.
            probe_debt: steps that promising ones may overdraw.
            max_probe_interval: plain steps after which to try, if that can be paid for.
            deeper_share: share of throughput that looking deeper may cost.
            switch_cost: what a change of depth costs, in plain steps.
        """

        depths: tuple[int, ...] | None = None
        memory_steps: float = 300.0
        memory_requests: float = 3000.0
        shift_ratio: float = 0.6
        fall_alarm: float = 11.0
        rise_alarm: float = 6.5
        follow_up: float = 1.2
        indifference: float = 0.01
        patience: float = 3.0
        max_patience: float = 24.0
        depth_indifference: float = 0.01
        depth_patience: float = 3.0
        caution: float = 1.0
        probe_share: float = 0.006
        probe_debt: float = 2.0
        max_probe_interval: int = 60
        deeper_share: float = 0.003
        switch_cost: float = 0.0

        def __post_init__(self) -> None:
            require(0 < self.shift_ratio < 1, "shift_ratio", self.shift_ratio, "between 0 and 1")
            require(self.memory_steps >= 2, "memory_steps", self.memory_steps, "at least 2")
            least = self.patience
            require(self.max_patience >= least, "max_patience", self.max_patience, f">= {least}")
            require(
                self.max_probe_interval >= 1, "max_probe_interval", self.max_probe_interval, "1+"
            )
            for name in ("memory_requests", "patience", "depth_patience"):
                require(getattr(self, name) > 0, name, getattr(self, name), "above 0")
            for name in ("fall_alarm", "rise_alarm", "follow_up", "indifference", "caution"):
                require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
            for name in ("probe_share", "deeper_share"):
                require(0 <= getattr(self, name) < 1, name, getattr(self, name), "0 to 1")
            for name in ("depth_indifference", "probe_debt", "switch_cost"):
                require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")

    def __init__(self, setting: Setting, parameters: Parameters) -> None:
        if setting.costs is None:
            raise ConfigError("kind throughput needs step times: a profile or a table of costs")
        self._costs = setting.costs
        self._depths = setting.candidates(parameters.depths)
        self._parameters = p = parameters
        self._belief = Belief(
            self._depths,
            memory_steps=p.memory_steps,
            memory_requests=p.memory_requests,
            ratio=p.shift_ratio,
        )
        self._break_evens: dict[int, list[float]] = {}
        self._version = self._costs.version
        # Places are indices of candidates; place 0 is plain decoding. The deepest tells most.
        self._place = self._before = len(self._depths) - 1
        self._toward_plain = self._toward_other = 0.0
        cost = p.switch_cost
        self._patience = Patience(p.patience + cost, p.max_patience + cost)
        self._depth_patience = Patience(p.depth_patience + cost, 8 * p.depth_patience + cost)
        self._probes = Budget(p.probe_share, most=4.0, debt=p.probe_debt)
        self._deeper = Budget(p.deeper_share, most=2.0, debt=0.0, balance=1.0)
        self._looks = self._speculated = 0
        self._stay = self._since_probe = self._waiting_at = self._shadowed = 0
        self._collapsed = False
        self._said = Decision(self._depths[-1], "begins at the deepest candidate")
        self._trials = [Decision(depth, "looks whether it pays", "probe") for depth in self._depths]

    def decide(self, observation: Observation) -> Decision:
        """Say how the coming step is to run."""
        if observation.correct and observation.depth:
            self._learn(observation.correct, observation.depth)
        if observation.shadow:
            self._learn(observation.shadow, self._depths[-1])
            self._shadowed = SHADOW_STEPS
        size = observation.batch_size
        if self._version != self._costs.version:
            self._version = self._costs.version
            self._break_evens.clear()
        row = self._break_evens.get(size)
        if row is None:
            row = [self._costs.break_even(depth, size) for depth in self._depths]
            self._break_evens[size] = row
        self._stay += 1
        self._probes.earn()
        if self._place:
            return self._speculating(row, size)
        return self._waiting(row, size, news=bool(observation.correct or observation.shadow))

    def _learn(self, correct: Sequence[int], depth: int) -> None:
        p = self._parameters
        alarms = (p.fall_alarm, p.fall_alarm if self._place else p.rise_alarm)
        change = self._belief.learn(correct, depth, alarms)
        if change is not None:
            self._deeper.grant(1.0)
            self._collapsed = change == "fell" and self._stay > COLLAPSE_STEPS
        if not self._place:
            self._belief.renew()

    def _speculating(self, row: list[float], size: int) -> Decision:
        belief, p, place = self._belief, self._parameters, self._place
        self._speculated += 1
        worth = belief.lengths[place] / row[place]
        hopeful = worth + p.caution * belief.errors[place] / row[place]
        other, other_worth = self._best(row, place)
        trust = belief.requests / (belief.requests + TRUST_REQUESTS)
        gain = (1 / hopeful - 1 - p.indifference) * trust
        self._toward_plain = max(0.0, self._toward_plain + gain)
        gain = (other_worth / worth - 1 - p.depth_indifference) * trust
        self._toward_other = max(0.0, self._toward_other + gain)
        before = self._before
        if before != place:
            old = belief.lengths[before] / row[before]
            (self._depth_patience if before else self._patience).gain(worth / old - 1)
        settled_in = self._speculated >= SETTLE_IN_STEPS
        if settled_in and worth < 1 and self._toward_plain >= self._patience.value:
            pays = other_worth > 1 + p.indifference and not self._collapsed
            return self._change(other if pays else 0, row, size)
        if other_worth > worth and self._toward_other >= self._depth_patience.value:
            pays = other_worth > (CLEARLY_PAYS if self._collapsed else 1) or not settled_in
            return self._change(other if pays else 0, row, size)
        return self._look_deeper(row, worth) or self._said

    def _look_deeper(self, row: list[float], worth: float) -> Decision | None:
        """A step at a greater depth, if that may be better and is cheap enough to try."""
        belief, place = self._belief, self._place
        self._deeper.earn()
        if self._stay % LOOK_EVERY or place == len(row) - 1 or self._deeper.balance < LEAST_PRICE:
            return None
        survival = 1.0
        for position in range(self._depths[place]):
            survival *= belief.rates[position]
        hope, best = belief.lengths[place], 0.0
        for further in range(place + 1, len(row)):
            for position in range(self._depths[further - 1], self._depths[further]):
                survival *= belief.hope(position)
                hope += survival
            best = max(best, hope / row[further])
        if best <= worth * (1 + self._parameters.depth_indifference):
            return None
        # Mostly the next candidate, which costs least; at times the deepest, which tells of all.
        target = len(row) - 1 if self._looks % 4 == 3 else place + 1
        price = max(LEAST_PRICE, row[target] - belief.lengths[target] / worth)
        if not self._deeper.spend(price + 2 * self._parameters.switch_cost):
            return None
        self._looks += 1
        return self._trials[target]

    def _waiting(self, row: list[float], size: int, *, news: bool) -> Decision:
        belief, p = self._belief, self._parameters
        best, worth = self._best(row, 0)
        self._patience.gain(1 - worth)
        self._since_probe += 1
        if not self._waiting_at / OTHER_BATCH < size < self._waiting_at * OTHER_BATCH:
            self._waiting_at, self._stay = size, 0
        if news:
            careful = worth - p.caution * belief.errors[best] / row[best]
            self._toward_other = max(0.0, self._toward_other + careful - 1 - p.indifference)
            if self._toward_other >= self._patience.value:
                return self._change(best, row, size)
        if self._shadowed:
            self._shadowed -= 1
            return self._said
        pays = worth > 1 + p.indifference
        if pays or (news and belief.rise > p.follow_up):
            urgent, target = True, best
            price = max(LEAST_PRICE, row[best] - belief.lengths[best])
        else:
            urgent = False
            target, price = self._most_telling(row)
        price += 0.0 if news else 2 * p.switch_cost
        if (urgent or self._due(price)) and self._probes.spend(price, urgent=urgent):
            self._since_probe = 0
            return self._trials[target]
        return self._said

    def _due(self, price: float) -> bool:
        """Whether to try again: ever more rarely, and no sooner than three times the budget."""
        interval = min(self._parameters.max_probe_interval, self._stay / 16)
        pace = 3 * self._probes.share * self._since_probe
        return self._since_probe >= interval and pace >= price

    def _most_telling(self, row: list[float]) -> tuple[int, float]:
        """The place where a step tells most for its price, and the price.

        At depth ``k`` a request shows ``1 + r + ... + r^(k-1)`` positions if acceptance is ``r``;
        0.7 stands for a recovery.
        """
        lengths = self._belief.lengths
        prices = [
            max(LEAST_PRICE, even - length) for even, length in zip(row, lengths, strict=True)
        ]
        place = min(
            range(1, len(row)), key=lambda place: prices[place] / (1 - 0.7 ** self._depths[place])
        )
        return place, prices[place]

    def _best(self, row: list[float], without: int) -> tuple[int, float]:
        """The best place that speculates, but for one; its worth is 0 if there is none."""
        best, worth = 0, 0.0
        lengths = self._belief.lengths
        for place in range(1, len(row)):
            if place != without and lengths[place] > worth * row[place]:
                best, worth = place, lengths[place] / row[place]
        return best, worth

    def _change(self, place: int, row: list[float], size: int) -> Decision:
        (self._depth_patience if self._place and place else self._patience).change()
        shown = place or self._place
        length, even = self._belief.lengths[shown], row[shown]
        self._before, self._place = self._place, place
        self._toward_plain = self._toward_other = 0.0
        self._stay = self._since_probe = 0
        self._waiting_at = size
        self._collapsed = False
        self._said = Decision(
            self._depths[place],
            f"at batch size {size} depth {self._depths[shown]} makes {length:.2f} tokens a step, "
            f"break-even is {even:.2f}: {length / even:.2f}x of plain decoding",
        )
        return self._said
