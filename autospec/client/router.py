"""Where each request goes, what became of it, and what follows: shared by all threads of a client.

No input or output here but the hooks, which are called outside the lock.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from typing import Final

from autospec.client.breaker import Breaker
from autospec.client.counters import TARGETS, Counters
from autospec.client.events import LOG, Hooks, RoutingDecision, Target
from autospec.client.exchange import Exchange
from autospec.client.steering import Steering, Ticket, sample
from autospec.engine.answers import Drafts
from autospec.errors import WireError

__all__ = ["Router"]

_ALWAYS: Final = Ticket("speculative")
_DEEPEST: Final = 1024
_LEVELS: Final = {"failover": logging.WARNING, "probe": logging.DEBUG}


class Router:
    """The state of one client."""

    def __init__(
        self,
        steering: Steering | None,
        *,
        has_plain: bool,
        clock: Callable[[], float],
        silence_s: float | None = None,
    ) -> None:
        """Begin with all servers up.

        Args:
            steering: the policy at work; None where the server itself decides.
            has_plain: whether there is a second server.
            clock: seconds, rising.
            silence_s: a server that has requests and says nothing for so long is looked at.
        """
        self.hooks = Hooks()
        self.clock = clock
        self._steering = steering
        self._targets: tuple[Target, ...] = TARGETS if has_plain else TARGETS[:1]
        self._breakers = {target: Breaker() for target in self._targets}
        self._silence_s = silence_s
        self._heard_s = dict.fromkeys(self._targets, 0.0)
        self._counters = Counters()
        self._lock = threading.Lock()
        self._warned: set[str] = set()

    @property
    def has_reserve(self) -> bool:
        """Whether there is another server to go to."""
        return len(self._targets) > 1

    @property
    def decision(self) -> RoutingDecision:
        """Where new requests go."""
        if self._steering is None:
            return RoutingDecision("speculative", "the server switches by itself")
        with self._lock:
            return self._steering.decision

    def counters(self) -> Counters:
        """A copy of what was counted."""
        with self._lock:
            now = copy.deepcopy(self._counters)
            now.up = {target: breaker.up for target, breaker in self._breakers.items()}
            now.hook_errors = self.hooks.errors
            if self._steering is not None:
                now.fallbacks, now.returns = self._steering.fallbacks, self._steering.returns
            return now

    def begin(self, path: str, *, generates: bool, streamed: bool) -> Exchange:
        """A request of the user: whom to ask, and who is in reserve."""
        now = self.clock()
        events: list[RoutingDecision] = []
        with self._lock:
            ticket = None
            if generates:
                ticket = self._choose(now, events)
            wanted = ticket.target if ticket else "speculative"
            order = [wanted, *(target for target in self._targets if target != wanted)]
            conditions = {t: self._breakers[t].condition(now) for t in order}
            look = False
            if conditions[wanted] == "due" and self.has_reserve:
                look = True
                self._breakers[wanted].claim(now)
            elif conditions[wanted] == "up" and self._is_silent(wanted, now):
                look = True
            elif conditions[wanted] == "down":
                # Last, but not never: it may be back before anybody has looked.
                order = order[1:] + order[:1]
            exchange = Exchange(path, streamed, ticket, now, order[0], order[1:], look)
            self._counters.running[exchange.target] += 1
        self._tell(events)
        return exchange

    def _choose(self, now: float, events: list[RoutingDecision]) -> Ticket:
        """What the policy says to a new request."""
        if self._steering is None:
            return _ALWAYS
        all_up = all(breaker.up for breaker in self._breakers.values())
        ticket = self._steering.choose(now, may_probe=all_up)
        if ticket.probe:
            self._counters.probes += 1
            said = self._steering.said
            reason = f"one request to the {ticket.target} server: {said.reason}"
            events.append(RoutingDecision("probe", reason, said.depth))
        return ticket

    def _is_silent(self, target: Target, now: float) -> bool:
        """Whether a server has long said nothing to all who wait; who finds out is to look."""
        silent = (
            self.has_reserve
            and self._silence_s is not None
            and self._counters.running[target] > 0
            and now - self._heard_s[target] > self._silence_s
        )
        if silent or not self._counters.running[target]:
            self._heard_s[target] = now
        return silent

    def heard(self, exchange: Exchange) -> None:
        """The first byte of an answer is here."""
        exchange.first_byte_s = self._heard_s[exchange.target] = self.clock()

    def looked(self, exchange: Exchange, *, alive: bool) -> None:
        """The result of a look at a server that was down, or silent."""
        exchange.look = False
        events: list[RoutingDecision] = []
        with self._lock:
            if alive:
                if self._breakers[exchange.target].alive():
                    text = f"the {exchange.target} server is back"
                    events.append(RoutingDecision("recovery", text, server=exchange.target))
            else:
                if self._breakers[exchange.target].up:
                    self._failure(exchange, "no sign of life", events, unreachable=True)
                self._move(exchange, [*exchange.reserve, exchange.target])
        self._tell(events)

    def failed(
        self, exchange: Exchange, reason: str, *, unreachable: bool = False, broken: bool = False
    ) -> bool:
        """A server failed a request before the first byte of its answer.

        Args:
            exchange: the request.
            reason: what went wrong.
            unreachable: no connection was made, so that the server is gone.
            broken: a connection broke, which may have been idle for too long.

        Returns:
            Whether the request goes on, to ``exchange.target``.
        """
        events: list[RoutingDecision] = []
        with self._lock:
            target = exchange.target
            exchange.failures += (f"{target} server: {reason}",)
            if broken and not exchange.resent:
                exchange.resent = True
                return True
            self._failure(exchange, reason, events, unreachable=unreachable)
            goes_on = bool(exchange.reserve)
            if goes_on:
                self._counters.failovers += 1
                self._move(exchange, exchange.reserve)
        self._tell(events)
        return goes_on

    def broke(self, exchange: Exchange, reason: str) -> None:
        """An answer broke off after the user was given its first byte."""
        events: list[RoutingDecision] = []
        with self._lock:
            self._failure(exchange, reason, events, unreachable=False)
        self._tell(events)

    def _failure(
        self, exchange: Exchange, reason: str, events: list[RoutingDecision], *, unreachable: bool
    ) -> None:
        target = exchange.target
        self._counters.failures[target] += 1
        if self._breakers[target].failed(self.clock(), unreachable=unreachable):
            text = f"the {target} server is down: {reason}"
            events.append(RoutingDecision("failover", text, server=target))

    def _tell(self, events: list[RoutingDecision]) -> None:
        for event in events:
            LOG.log(_LEVELS.get(event.action, logging.INFO), "%s: %s", event.action, event.reason)
        self.hooks.fire(events)

    def _move(self, exchange: Exchange, order: list[Target]) -> None:
        running = self._counters.running
        running[exchange.target] -= 1
        exchange.target, exchange.reserve = order[0], order[1:]
        running[exchange.target] += 1
        exchange.resent = False

    def ended(self, exchange: Exchange, drafts: Drafts | WireError | None) -> None:
        """A request is over, with an answer; the second call and later ones do nothing."""
        if exchange.done:
            return
        exchange.done = True
        now = self.clock()
        with self._lock:
            if exchange.status < 500:
                self._breakers[exchange.target].answered()
            events = self._learn(exchange, self._note(exchange, drafts), now)
            self._counters.running[exchange.target] -= 1
        self._tell(events)
        if exchange.ticket is not None and self.hooks.response:
            self.hooks.fire([exchange.report(drafts, now)])

    def given_up(self, exchange: Exchange, *, failed: bool) -> None:
        """A request is over without a whole answer: no server gave one, or the user left."""
        if exchange.done:
            return
        exchange.done = True
        with self._lock:
            self._counters.unanswered += failed
            events = self._learn(exchange, None, self.clock())
            self._counters.running[exchange.target] -= 1
        self._tell(events)

    def _note(self, exchange: Exchange, drafts: Drafts | WireError | None) -> list[int] | None:
        """Count an answer; gives what it shows the policy."""
        counters, ticket = self._counters, exchange.ticket
        if ticket is None:
            return None
        counters.requests[exchange.target] += 1
        if exchange.status >= 400:
            return None
        if exchange.target == "plain":
            return []
        if isinstance(drafts, WireError):
            counters.unreadable += 1
            self._warn(f"an answer's account of its drafts is left out, logged once: {drafts}")
            return None
        if drafts is None:
            counters.unknown += 1
            return None
        counters.verify_steps += drafts.verify_ct
        counters.correct_drafts += drafts.num_correct_drafts
        depth = _DEEPEST if self._steering is None else self._steering.depth
        if self._steering is not None and self._steering.sure and len(drafts.histogram) > depth + 1:
            self._warn(
                f"the speculative server drafts deeper than {depth}, which is the depth of the "
                "profile: it is another server's, or depth= is to be given"
            )
        return sample(drafts.histogram, depth)

    def _learn(
        self, exchange: Exchange, values: list[int] | None, now: float
    ) -> list[RoutingDecision]:
        ticket = exchange.ticket
        if self._steering is None or ticket is None:
            return []
        if exchange.target != ticket.target:
            values = None
        return self._steering.learn(ticket, values, sum(self._counters.running.values()), now)

    def _warn(self, text: str) -> None:
        """Log once a kind of trouble."""
        kind = text[:30]
        if kind not in self._warned:
            self._warned.add(kind)
            LOG.warning("%s", text)
