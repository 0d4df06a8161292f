"""What a client has counted, as numbers and as Prometheus reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from autospec.client.events import Target

__all__ = ["TARGETS", "Counters", "exposition"]

TARGETS: Final[tuple[Target, Target]] = ("speculative", "plain")


def _by_target() -> dict[Target, int]:
    return dict.fromkeys(TARGETS, 0)


@dataclass(slots=True)
class Counters:
    """Counts since the client was made.

    Attributes:
        requests: answers by who gave them.
        failures: requests that a server failed, by server.
        failovers: requests that went to the other server after one had failed them.
        unanswered: requests that no server answered.
        probes: requests that were sent to learn from.
        fallbacks: changes from the speculative server to the plain one by the policy.
        returns: the reverse.
        verify_steps: verify steps that answers told of.
        correct_drafts: drafts that were right in them.
        unknown: answers of the speculative server that told nothing of drafts.
        unreadable: answers whose account of drafts cannot be true.
        hook_errors: exceptions of the user's hooks.
        running: requests in flight, by server.
        up: whether a server is given requests.
    """

    requests: dict[Target, int] = field(default_factory=_by_target)
    failures: dict[Target, int] = field(default_factory=_by_target)
    failovers: int = 0
    unanswered: int = 0
    probes: int = 0
    fallbacks: int = 0
    returns: int = 0
    verify_steps: int = 0
    correct_drafts: int = 0
    unknown: int = 0
    unreadable: int = 0
    hook_errors: int = 0
    running: dict[Target, int] = field(default_factory=_by_target)
    up: dict[Target, bool] = field(default_factory=dict)

    @property
    def accept_length(self) -> float | None:
        """Tokens a verify step over all answers that told of it; None before the first."""
        return 1 + self.correct_drafts / self.verify_steps if self.verify_steps else None


#: Name without prefix, type, help and field.
_COUNTS: Final = (
    ("requests_total", "counter", "Answers by the server that gave them.", "requests"),
    ("failures_total", "counter", "Requests that a server failed.", "failures"),
    ("failovers_total", "counter", "Requests that went on to the other server.", "failovers"),
    ("unanswered_total", "counter", "Requests that no server answered.", "unanswered"),
    ("probes_total", "counter", "Requests sent to learn from.", "probes"),
    ("fallbacks_total", "counter", "Changes to the plain server by the policy.", "fallbacks"),
    ("returns_total", "counter", "Changes to the speculative server by the policy.", "returns"),
    ("verify_steps_total", "counter", "Verify steps that answers told of.", "verify_steps"),
    ("correct_drafts_total", "counter", "Drafts that were right in them.", "correct_drafts"),
    ("unknown_total", "counter", "Speculative answers that told nothing of drafts.", "unknown"),
    ("unreadable_total", "counter", "Answers with an untrue account of drafts.", "unreadable"),
    ("hook_errors_total", "counter", "Exceptions of hooks.", "hook_errors"),
    ("running_requests", "gauge", "Requests in flight.", "running"),
    ("server_up", "gauge", "Whether a server is given requests.", "up"),
    ("accept_length", "gauge", "Tokens a verify step since the start.", "accept_length"),
)


def exposition(counters: Counters) -> str:
    """The counters in Prometheus' text format."""
    return "".join(f"{line}\n" for line in _lines(counters))


def _lines(counters: Counters) -> Iterator[str]:
    for short, kind, text, attribute in _COUNTS:
        value = getattr(counters, attribute)
        if value is None:
            continue
        name = f"autospec_client_{short}"
        yield f"# HELP {name} {text}"
        yield f"# TYPE {name} {kind}"
        if isinstance(value, dict):
            for target, number in value.items():
                yield f'{name}{{server="{target}"}} {float(number):g}'
        else:
            yield f"{name} {float(value):.12g}"
