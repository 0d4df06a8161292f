"""One request of the user, and what was done for it."""

from __future__ import annotations

from dataclasses import dataclass

from autospec.client.events import ResponseReport, Target
from autospec.client.steering import Ticket
from autospec.engine.answers import Drafts
from autospec.errors import WireError

__all__ = ["Exchange"]


@dataclass(slots=True)
class Exchange:
    """One request of the user and what was done for it.

    Attributes:
        path: the endpoint.
        streamed: whether a stream was asked for.
        ticket: what the policy said; None for a request that generates nothing.
        began_s: when it began.
        target: who is asked now.
        reserve: who is asked next if that fails.
        look: whether to look first if the server lives.
        attempts: requests sent for it.
        resent: whether it was sent a second time to the same server.
        failures: what went wrong, one line for each attempt.
        first_byte_s: when the body began.
        status: HTTP status of the answer.
        done: whether it is over.
    """

    path: str
    streamed: bool
    ticket: Ticket | None
    began_s: float
    target: Target
    reserve: list[Target]
    look: bool = False
    attempts: int = 0
    resent: bool = False
    failures: tuple[str, ...] = ()
    first_byte_s: float | None = None
    status: int = 0
    done: bool = False

    def report(self, drafts: Drafts | WireError | None, now_s: float) -> ResponseReport:
        """What hooks are told when it is over."""
        known = drafts if isinstance(drafts, Drafts) else None
        first = now_s if self.first_byte_s is None else self.first_byte_s
        return ResponseReport(
            path=self.path,
            server=self.target,
            status=self.status,
            streamed=self.streamed,
            probe=self.ticket is not None and self.ticket.probe,
            attempts=self.attempts,
            first_byte_ms=1000 * (first - self.began_s),
            duration_ms=1000 * (now_s - self.began_s),
            accept_length=known.accept_length if known else None,
            verify_ct=known.verify_ct if known else None,
        )
