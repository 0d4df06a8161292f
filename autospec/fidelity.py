"""Whether a configuration's greedy answers are those of plain decoding: what a profile keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autospec.evidence import require

__all__ = ["Agreement", "Fidelity", "Lossless"]

#: Outcomes of the comparison of greedy answers with plain decoding's.
Fidelity = Literal["identical", "like plain", "differs"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Greedy answers of one server against those of plain decoding, by number of prompts.

    Attributes:
        identical: answers that are the same token by token.
        near_ties: answers whose first differing token was about as likely, to plain decoding, as
            the one that plain decoding chose: rounding decides between such two.
        wide: answers whose first differing token was not.
        positions: quartiles of the positions of the first differing tokens, from 0; None when
            there are none.
        widest: the largest distance between two such tokens, in nats, as far as it is known.
    """

    identical: int
    near_ties: int
    wide: int
    positions: tuple[float, float, float] | None = None
    widest: float | None = None

    def __post_init__(self) -> None:
        for name in ("identical", "near_ties", "wide"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        require(self.prompts >= 1, "prompts", self.prompts, "at least 1")

    @property
    def prompts(self) -> int:
        """Answers compared."""
        return self.identical + self.near_ties + self.wide

    @property
    def identical_share(self) -> float:
        """Share of answers that are the same."""
        return self.identical / self.prompts

    @property
    def near_tie_share(self) -> float:
        """Share of the differing answers that first differ at a near-tie; 1 when none differs."""
        differing = self.near_ties + self.wide
        return self.near_ties / differing if differing else 1.0


@dataclass(frozen=True, slots=True)
class Lossless:
    """Whether a configuration's greedy answers are those of plain decoding.

    Attributes:
        decision: ``identical``: all answers are. ``like plain``: it has no more wide divergences
            than plain decoding has from itself, within chance. ``differs``: it has more.
        candidate: the configuration against plain decoding.
        control: plain decoding against itself.
        near_tie_nats: the greatest distance of a near-tie.
    """

    decision: Fidelity
    candidate: Agreement
    control: Agreement
    near_tie_nats: float

    def __post_init__(self) -> None:
        same = self.candidate.identical == self.candidate.prompts
        require(
            same == (self.decision == "identical"),
            "decision",
            self.decision,
            "identical if and only if all answers are",
        )
