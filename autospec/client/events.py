"""What hooks are told, and how they are called. Nothing here holds a prompt or an answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["LOG", "Action", "Hooks", "ResponseReport", "RoutingDecision", "Target"]

LOG: Final = logging.getLogger("autospec.client")

#: Which of the two servers.
Target = Literal["speculative", "plain"]
#: Where new requests go from now on, where a single one goes to learn from, or what else happened.
Action = Literal["speculative", "plain", "probe", "failover", "recovery"]


@dataclass(frozen=True, slots=True)
class RoutingDecision:
    """What the client decided.

    Attributes:
        action: ``speculative`` or ``plain`` for where new requests go from now on; ``probe`` for
            one request that goes to the other server to learn from; ``failover`` when a server is
            given no more requests, and ``recovery`` when it is given requests again.
        reason: for a person.
        depth: drafting depth that the policy asked for, where a policy decided.
        server: the server that a failover or a recovery is about.
    """

    action: Action
    reason: str
    depth: int | None = None
    server: Target | None = None


@dataclass(frozen=True, slots=True)
class ResponseReport:
    """One finished request.

    Attributes:
        path: the endpoint, such as ``/generate``.
        server: who answered.
        status: HTTP status.
        streamed: whether it was a stream.
        probe: whether it was sent to learn from.
        attempts: requests that were sent for it, the answered one included.
        first_byte_ms: time to the first byte of the answer's body.
        duration_ms: time to its last byte.
        accept_length: tokens a verify step; None where the answer does not say.
        verify_ct: verify steps; None where the answer does not say.
    """

    path: str
    server: Target
    status: int
    streamed: bool
    probe: bool
    attempts: int
    first_byte_ms: float
    duration_ms: float
    accept_length: float | None = None
    verify_ct: int | None = None


class Hooks:
    """The user's functions, which must not break a request.

    Attributes:
        errors: exceptions that they raised.
    """

    def __init__(self) -> None:
        self.errors = 0
        self.decision: list[Callable[[RoutingDecision], Any]] = []
        self.response: list[Callable[[ResponseReport], Any]] = []
        self._logged: set[int] = set()
        self._lock = threading.Lock()

    def fire(self, events: Iterable[RoutingDecision | ResponseReport]) -> None:
        """Tell the hooks; their exceptions are logged, the first of each hook."""
        for event in events:
            hooks: list[Any] = (
                self.decision if isinstance(event, RoutingDecision) else self.response
            )
            for hook in hooks:
                try:
                    hook(event)
                except Exception as error:  # noqa: BLE001  # a user's hook must not end a request
                    self._failed(hook, error)

    def _failed(self, hook: object, error: Exception) -> None:
        with self._lock:
            self.errors += 1
            first = id(hook) not in self._logged
            self._logged.add(id(hook))
        if first:
            # The message is the user's and might quote a prompt; its type is enough to find it.
            LOG.warning("a hook raised %s, logged once: %r", type(error).__name__, hook)
