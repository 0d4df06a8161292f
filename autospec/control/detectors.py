"""Sequential tests and the accounts that go with them. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["Budget", "Patience", "Shift"]

#: A change has paid that brought so many times what it had to promise.
PAID = 6
#: Rates are kept this far from 0 and 1, which bounds what one request can say.
MARGIN = 0.03


class Shift:
    """CUSUM test of "acceptance has moved" against "acceptance is as it was".

    It sums the log likelihood ratio of the two over requests and positions, and begins again
    whenever the sum falls to 0: a sequential probability ratio test, repeated. Large batches say
    more in a step and are believed sooner. Where nothing moved, a sum above ``h`` is met no more
    often than once in ``exp(h)`` steps on average (Lorden 1971). What was counted since the sum
    last stood at 0 is what came after the change.

    Attributes:
        score: the sum, in nats.
        trials: counts since the sum last stood at 0, as in ``Acceptance``.
        hits: the same.
    """

    def __init__(self, depth: int, *, upward: bool, ratio: float) -> None:
        """Set up a test.

        Args:
            depth: positions watched.
            upward: whether it looks for better acceptance or for worse.
            ratio: by which the share of wrong drafts (upward) or of right ones (downward) falls in
                the alternative.
        """
        self._upward = upward
        self._ratio = ratio
        self._right = [0.0] * depth
        self._wrong = [0.0] * depth
        self.score = 0.0
        self.trials = [0.0] * depth
        self.hits = [0.0] * depth

    def expect(self, rates: Sequence[float]) -> None:
        """Take these rates for how acceptance was."""
        for position, rate in enumerate(rates):
            was = min(max(rate, MARGIN), 1 - MARGIN)
            now = 1 - self._ratio * (1 - was) if self._upward else self._ratio * was
            self._right[position] = math.log(now / was)
            self._wrong[position] = math.log((1 - now) / (1 - was))

    def learn(self, alive: Sequence[int]) -> None:
        """Count one step, as ``survivors`` gives it."""
        score = self.score
        for position in range(len(alive) - 1):
            right = alive[position + 1]
            score += right * self._right[position]
            score += (alive[position] - right) * self._wrong[position]
        if score <= 0:
            if self.score > 0:
                self.reset()
            return
        self.score = score
        for position in range(len(alive) - 1):
            self.trials[position] += alive[position]
            self.hits[position] += alive[position + 1]

    def reset(self) -> None:
        """Begin again."""
        self.score = 0.0
        self.trials = [0.0] * len(self.trials)
        self.hits = [0.0] * len(self.hits)


class Budget:
    """What may be given up to learn something: a share of all steps.

    Over ``n`` steps no more than ``share * n + debt`` and the price of one step is spent.

    Attributes:
        share: earned in each step, in steps.
        balance: what may be spent now; below 0 in debt.
    """

    def __init__(self, share: float, *, most: float, debt: float, balance: float = 0.0) -> None:
        """Open an account.

        Args:
            share: earned in each step.
            most: earning stops at this balance.
            debt: how far an urgent step may overdraw.
            balance: to begin with.
        """
        self.share = share
        self._most = most
        self._debt = debt
        self.balance = balance

    def earn(self) -> None:
        """Another step was decided."""
        if self.balance < self._most:
            self.balance += self.share

    def spend(self, price: float, *, urgent: bool = False) -> bool:
        """Pay for one step, if it can be paid for."""
        if self.balance < (price - self._debt if urgent else price):
            return False
        self.balance -= price
        return True

    def grant(self, balance: float) -> None:
        """Raise the balance to at least this."""
        self.balance = max(self.balance, balance)


class Patience:
    """How much a change must promise before it is made, in steps.

    A change that brought less than ``PAID`` times what it had to promise doubles this for the next;
    one that brought more halves it. So where two choices are about equally good changes die out,
    and where much is at stake they stay quick.

    Attributes:
        value: the sum of relative gains that the next change has to promise.
    """

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most
        self._gained: float | None = None
        self.value = least

    def gain(self, steps: float) -> None:
        """Add what the last change brought in another step."""
        if self._gained is not None:
            self._gained += steps

    def change(self) -> None:
        """Judge the last change, now that another is made."""
        if self._gained is not None:
            paid = self._gained >= PAID * self.value
            value = self.value / 2 if paid else self.value * 2
            self.value = min(max(value, self._least), self._most)
        self._gained = 0.0
