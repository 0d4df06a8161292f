"""What a policy sees and says. Pure: no clock, no input or output, no engine.

A policy is asked once before each step. What it answers depends on nothing but what it was shown,
so that every rank of a tensor-parallel server, shown the same, decides the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from autospec.control.costs import Costs
from autospec.errors import ConfigError

__all__ = ["Decision", "Observation", "Policy", "Setting", "Want"]

#: What a decision is for: to stay with a depth, or to learn something in this one step.
Want = Literal["settle", "probe"]


class Observation(NamedTuple):
    """What a server shows before a step.

    Attributes:
        batch_size: requests in the step that is about to run.
        depth: drafting depth of the step before; 0 when it was plain, and before the first.
        correct: correct drafts of each request in the step before, none above ``depth``; empty
            after a plain step.
        shadow: correct drafts of drafts at the greatest depth that were not verified but held
            against what plain decoding made, and came to their end in the step before; empty where
            drafts cost more than that.
        queue: requests that wait; None where it is not known.
        time_s: the caller's clock, for policies of the user's own. The shipped kinds ignore it.
    """

    batch_size: int
    depth: int = 0
    correct: Sequence[int] = ()
    shadow: Sequence[int] = ()
    queue: int | None = None
    time_s: float | None = None


class Decision(NamedTuple):
    """What a policy says.

    Attributes:
        depth: drafting depth of the coming step; 0 is plain decoding.
        reason: for a person; constant while nothing changes.
        want: ``probe`` marks a step that is run to learn from, and no change of mind.
    """

    depth: int
    reason: str
    want: Want = "settle"


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a policy works.

    Attributes:
        depths: drafting depths that the server can run, rising, 0 among them.
        costs: step times; None where nothing was measured.
    """

    depths: tuple[int, ...]
    costs: Costs | None = None

    def __post_init__(self) -> None:
        if not self.depths or self.depths[0] != 0 or list(self.depths) != sorted(set(self.depths)):
            raise ConfigError(f"depths are {self.depths}, must rise from 0")
        if self.costs is not None and not set(self.depths) <= set(self.costs.depths):
            raise ConfigError(
                f"depths are {self.depths}, but step times are known for {self.costs.depths} only"
            )

    @property
    def deepest(self) -> int:
        """The greatest depth."""
        return self.depths[-1]

    def candidates(self, wanted: tuple[int, ...] | None) -> tuple[int, ...]:
        """The depths to choose from: those wanted that there are, or all; 0 always.

        Raises:
            ConfigError: that leaves nothing to choose from.
        """
        asked = self.depths if wanted is None else tuple(sorted({0, *wanted}))
        depths = tuple(depth for depth in asked if depth in self.depths)
        if len(depths) < 2:
            raise ConfigError(
                f"depths are {list(asked)}, one above 0 must be of the server's {list(self.depths)}"
            )
        return depths

    def at_most(self, depth: int) -> int:
        """The greatest depth that is not above the one given; 0 if there is none."""
        return max((known for known in self.depths if known <= depth), default=0)


class Policy(Protocol):
    """A rule with its state, for one server.

    A kind is a class of policies. It is made with ``Kind(setting, parameters)``, where
    ``parameters`` is of ``Kind.Parameters``, a frozen dataclass of what a policy file may give.
    """

    def decide(self, observation: Observation) -> Decision:
        """Say how the coming step is to run. Called once before every step."""
