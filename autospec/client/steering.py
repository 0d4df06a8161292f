"""A policy at work on requests instead of steps. Pure: time is an argument.

A policy decides before each step of a server; a client decides before each request and learns when
it has ended. So one finished request is one step: of a speculative server it shows the correct
drafts of some of its verify steps, of a plain one nothing. What a policy may give up to learn, a
share of its steps, is then that share of the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from autospec.client.events import RoutingDecision, Target
from autospec.control.controller import Controller
from autospec.control.policy import Decision, Observation

__all__ = ["SHOWN", "Steering", "Ticket", "sample"]

#: Verify steps of one request that are shown. Those of one prompt are alike, and more of them
#: would let a single odd prompt pass for a change of all.
SHOWN: Final = 16
#: A trial is shown in so many parts, one after the other as long as the policy asks for more.
PARTS: Final = 4
#: A trial that has not ended by then, in s, is given up.
PATIENCE_S: Final = 600.0


class Ticket(NamedTuple):
    """Where a request goes, and under which decision.

    Attributes:
        target: the server.
        epoch: settled decisions before it.
        probe: whether it goes there to learn from.
    """

    target: Target
    epoch: int = 0
    probe: bool = False


def sample(histogram: Sequence[int], depth: int) -> list[int]:
    """Correct drafts of at most ``SHOWN`` verify steps, rising, spread evenly over all.

    Args:
        histogram: number of steps by how many of their drafts were right.
        depth: what lies deeper counts as this.
    """
    total = sum(histogram)
    shown = min(SHOWN, total)
    values: list[int] = []
    passed = 0
    for correct, count in enumerate(histogram):
        passed += count
        while len(values) < shown and (2 * len(values) + 1) * total < 2 * passed * shown:
            values.append(min(correct, depth))
    return values


class Steering:
    """Says where new requests go, and learns from those that have ended.

    Attributes:
        depth: drafting depth of the speculative server.
        sure: whether that is known.
        fallbacks: changes from the speculative to the plain server.
        returns: the reverse.
        said: the policy's latest word.
    """

    def __init__(
        self, controller: Controller, depth: int, *, routes: bool, sure: bool = True
    ) -> None:
        """Begin.

        Args:
            controller: the policy at work.
            depth: drafting depth of the speculative server.
            routes: whether there is a choice; without one the policy is asked all the same.
            sure: whether the depth is known; without it no answer can belie it.
        """
        self.sure = sure
        self._controller = controller
        self.depth = depth
        self._routes = routes
        self._epoch = 0
        self._probing: str | None = None
        self._probe_since_s = 0.0
        self.fallbacks = self.returns = 0
        self.said = controller.decide(Observation(1))
        self._settled = self.said

    @property
    def decision(self) -> RoutingDecision:
        """Where new requests go now."""
        return RoutingDecision(_side(self._settled), self._settled.reason, self._settled.depth)

    def choose(self, now_s: float, *, may_probe: bool = True) -> Ticket:
        """Say where a new request goes.

        Args:
            now_s: the time.
            may_probe: whether a trial would reach its server.
        """
        settled = _side(self._settled)
        if not self._routes:
            return Ticket("speculative", self._epoch)
        if self._probing == "out" and now_s - self._probe_since_s > PATIENCE_S:
            self._probing = None
        if self._probing != "wanted" or not may_probe:
            return Ticket(settled, self._epoch)
        self._probing, self._probe_since_s = "out", now_s
        return Ticket(_side(self.said), self._epoch, probe=True)

    def learn(
        self, ticket: Ticket, values: Sequence[int] | None, batch_size: int, now_s: float
    ) -> list[RoutingDecision]:
        """Learn from a request that has ended.

        Args:
            ticket: its own.
            values: correct drafts of some of its verify steps; empty if it was decoded plainly;
                None if nothing is known.
            batch_size: requests in flight, itself included.
            now_s: the time.

        Returns:
            The decisions that changed where requests go.
        """
        if ticket.probe:
            self._probing = None
            # Every part is to be like the whole.
            parts = [part for at in range(PARTS) if (part := (values or ())[at::PARTS])] or [()]
        elif values is None or ticket.epoch != self._epoch or self._probing is not None:
            # What was sent under an earlier decision teaches nothing about this one, and while a
            # trial is out no step passes: its answer is to be the next that the policy sees.
            return []
        else:
            parts = [values]
        events: list[RoutingDecision] = []
        for part in parts:
            depth = self.depth if part else 0
            said = self._controller.decide(Observation(batch_size, depth, part, time_s=now_s))
            events += self._take(said)
            if said.want != "probe":
                break
        if self._routes and self.said.want == "probe" and _side(self.said) != _side(self._settled):
            self._probing = "wanted"
        return events

    def _take(self, said: Decision) -> list[RoutingDecision]:
        self.said = said
        if said.want == "probe":
            return []
        before, self._settled = _side(self._settled), said
        after = _side(said)
        if before == after:
            return []
        self._epoch += 1
        if after == "plain":
            self.fallbacks += 1
        else:
            self.returns += 1
        return [self.decision]


def _side(decision: Decision) -> Target:
    return "speculative" if decision.depth else "plain"
