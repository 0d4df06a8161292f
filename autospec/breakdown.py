"""What stands beside one choice for everything: winners by load and by class, and early losers."""

from __future__ import annotations

from dataclasses import dataclass

from autospec.config import SpecConfig
from autospec.evidence import Interval, require

__all__ = ["Stopped", "Winner"]


@dataclass(frozen=True, slots=True)
class Winner:
    """The best configuration on a part of the workload, beside the one deployed for all of it.

    Another one than the deployed is named only where it is clearly ahead. All figures are from the
    prompts of the search. The intervals allow for the choice among all candidates.

    Attributes:
        config: the best; plain decoding is one of those it is chosen from.
        vs_plain: its ratio to plain decoding; exactly 1 for plain decoding itself.
        choice_vs_plain: the deployed configuration's.
        vs_choice: its ratio to the deployed configuration: what one choice for all costs here.
        concurrency: the load it is for; None for all loads, by the geometric mean.
        label: the class it is for; None for all prompts.
        accept_length: its tokens per verify step there; None without speculation.
    """

    config: SpecConfig
    vs_plain: Interval
    choice_vs_plain: Interval
    vs_choice: Interval
    concurrency: int | None = None
    label: str | None = None
    accept_length: float | None = None

    def __post_init__(self) -> None:
        one_part = (self.concurrency is None) != (self.label is None)
        require(one_part, "label", self.label, "given, or concurrency, not both")

    @property
    def part(self) -> str:
        """The part of the workload, in words."""
        return self.label or f"concurrency {self.concurrency}"


@dataclass(frozen=True, slots=True)
class Stopped:
    """A candidate that was stopped early, for it was clearly behind the best one then.

    Attributes:
        config: what ran.
        repeats: passes at each load that were made.
        vs_plain: ratio to plain decoding over the same prompts.
    """

    config: SpecConfig
    repeats: int
    vs_plain: Interval

    def __post_init__(self) -> None:
        require(self.repeats >= 1, "repeats", self.repeats, "at least 1")
