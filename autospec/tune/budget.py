"""How long a study may take and what fits into it. Time is an argument; no clock is read here."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from autospec.errors import BudgetError

__all__ = [
    "PLAIN_LAUNCHES",
    "Budget",
    "Clock",
    "Cost",
    "Plan",
    "format_duration",
    "parse_duration",
    "plan",
]

#: Plain decoding is the baseline, and launched once more it shows the machine's noise.
PLAIN_LAUNCHES: Final = 2
_NUMBER: Final = r"\d+(?:\.\d+)?"
_DURATION: Final = re.compile(
    rf"(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?", re.ASCII
)
_BARE: Final = re.compile(_NUMBER, re.ASCII)
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0}


def parse_duration(text: str) -> float:
    """Read ``45m``, ``90s``, ``1h30m`` or a bare number of seconds.

    Returns:
        Seconds, above 0.

    Raises:
        BudgetError: the text is no such duration, or zero.
    """
    compact = text.strip()
    if _BARE.fullmatch(compact):
        seconds = float(compact)
    else:
        match = _DURATION.fullmatch(compact)
        parts = match.groupdict(default="0") if match else {}
        seconds = sum(float(parts.get(unit, "0")) * factor for unit, factor in _SECONDS.items())
    if not 0 < seconds < math.inf:
        raise BudgetError(f"duration {text!r} must be above zero, such as 45m, 90s, 1h30m or 600")
    return seconds


def format_duration(seconds: float) -> str:
    """Write a duration as ``parse_duration`` reads it, rounded up to a whole second."""
    whole = math.ceil(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    parts = [(hours, "h"), (minutes, "m"), (rest, "s")]
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


@dataclass(frozen=True, slots=True)
class Budget:
    """What the user allows.

    Attributes:
        seconds: wall time over all sessions of the study; None for no limit.
        max_trials: candidates measured, plain decoding not counted; None for no limit.

    Raises:
        BudgetError: a limit that allows nothing.
    """

    seconds: float | None = None
    max_trials: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise BudgetError(f"the budget is {self.seconds} s, must be above 0")
        if self.max_trials is not None and self.max_trials < 1:
            raise BudgetError(f"the number of trials is {self.max_trials}, must be at least 1")


class Clock:
    """Seconds that a study has used, earlier sessions included.

    Args:
        now: a monotonic clock in seconds.
        used_s: what earlier sessions used.
    """

    def __init__(self, now: Callable[[], float], used_s: float = 0.0) -> None:
        self._now = now
        self._start_s = now() - used_s

    def used_s(self) -> float:
        """Seconds used so far."""
        return self._now() - self._start_s


@dataclass(frozen=True, slots=True)
class Cost:
    """What the parts of a study are expected to take, in seconds.

    Attributes:
        launch_s: starting and stopping a server.
        passes_s: all passes of one trial.
        confirm_s: one round of the confirmation, its launches included.
        confirm_launches: servers started for that round.
        confirm_rounds: rounds at most, where the first does not decide.
    """

    launch_s: float
    passes_s: float
    confirm_s: float = 0.0
    confirm_launches: int = 0
    confirm_rounds: int = 1

    @property
    def trial_s(self) -> float:
        """One configuration: launch and passes."""
        return self.launch_s + self.passes_s


@dataclass(frozen=True, slots=True)
class Plan:
    """What a study is expected to do, said before it starts.

    Attributes:
        candidates: configurations not yet measured.
        trials: of these, how many are planned.
        plain_launches: of plain decoding: the baseline, and once more for the noise.
        cost: the expected seconds a part.
        limit: what ends the search: ``candidates``, ``max_trials`` or ``budget``.
    """

    candidates: int
    trials: int
    plain_launches: int
    cost: Cost
    limit: str

    @property
    def launches(self) -> int:
        """Servers to start: plain, trials and confirmation."""
        return self.plain_launches + self.trials + self.cost.confirm_launches

    @property
    def expected_s(self) -> float:
        """Seconds until the study is done."""
        searching = (self.plain_launches + self.trials) * self.cost.trial_s
        return searching + self.cost.confirm_s

    def __str__(self) -> str:
        limits = {
            "candidates": "all candidates",
            "max_trials": "as many as asked for",
            "budget": "as many as the budget holds",
        }
        most = self.cost.confirm_launches * self.cost.confirm_rounds
        unclear = f" (up to {most} while unclear)" if most > self.cost.confirm_launches else ""
        return (
            f"{self.trials} of {self.candidates} candidates ({limits[self.limit]}), "
            f"{self.launches} launches: {self.plain_launches} for plain decoding, "
            f"{self.trials} trials, {self.cost.confirm_launches} to confirm{unclear}; "
            f"{format_duration(self.cost.trial_s)} a trial, "
            f"about {format_duration(self.expected_s)} in all"
        )


def plan(
    candidates: int,
    budget: Budget,
    cost: Cost,
    *,
    used_s: float = 0.0,
    trials_done: int = 0,
    plain_launches: int = PLAIN_LAUNCHES,
) -> Plan:
    """What fits into a budget.

    Args:
        candidates: configurations not yet measured.
        budget: over the whole study.
        cost: expected seconds a part.
        used_s: seconds used by earlier sessions.
        trials_done: candidates measured by earlier sessions.
        plain_launches: launches of plain decoding still to be made; the last of them, for the
            noise, is left out where the time does not hold it beside a trial and the confirmation.

    Raises:
        BudgetError: the time cannot hold even the launch and passes of the baseline.
    """
    trials, limit = candidates, "candidates"
    if budget.max_trials is not None and budget.max_trials - trials_done < trials:
        trials, limit = max(0, budget.max_trials - trials_done), "max_trials"
    if budget.seconds is not None:
        left_s = budget.seconds - used_s
        if left_s < cost.trial_s and plain_launches == PLAIN_LAUNCHES:
            raise BudgetError(
                f"the budget of {format_duration(budget.seconds)} is shorter than one launch: "
                f"the least is {format_duration(used_s + cost.trial_s)}"
            )
        if plain_launches and left_s < (plain_launches + 1) * cost.trial_s + cost.confirm_s:
            plain_launches -= 1
        searching_s = max(0.0, left_s - plain_launches * cost.trial_s - cost.confirm_s)
        if trials * cost.trial_s > searching_s:
            trials, limit = int(searching_s // cost.trial_s), "budget"
    return Plan(candidates, trials, plain_launches, cost, limit)
