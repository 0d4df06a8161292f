"""What watching shows: the same for the terminal, for ``--json`` and for commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autospec import schema
from autospec.control.status import StatusEvent

__all__ = ["DriftView", "Event", "EventKind", "ServerView", "State", "View", "Window"]

#: ``speculating`` and ``plain`` by what was decided or seen; ``gone`` when the server is silent.
State = Literal["speculating", "plain", "unknown", "gone"]
EventKind = Literal["found", "gone", "restarted", "fallback", "return", "drift", "command"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened while watching.

    Attributes:
        time: when it was noticed, as ISO 8601 in UTC.
        kind: what.
        text: one line for a person.
        command: what to do about it, if there is something.
    """

    time: str
    kind: EventKind
    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class ServerView:
    """What the server is.

    Attributes:
        version: SGLang's.
        model: its target.
        config: how it was started to decode.
        max_running_requests: its admission limit.
    """

    version: str
    model: str
    config: str
    max_running_requests: int


@dataclass(frozen=True, slots=True)
class Window:
    """Decode steps between the two latest readings, those beside a prefill or a gap left out.

    Attributes:
        seconds: time between the readings.
        num_steps: decode steps.
        batch_size: mean running requests a step.
        step_time_ms: mean time of a step, drafting included.
        accept_length: tokens a request makes in a step; 1 in plain decoding.
        profile_step_time_ms: a step's time by the profile, at this depth and batch size.
    """

    seconds: float
    num_steps: int
    batch_size: float
    step_time_ms: float
    accept_length: float
    profile_step_time_ms: float | None = None


@dataclass(frozen=True, slots=True)
class DriftView:
    """Whether the server does what its profile says.

    Attributes:
        verdict: ``unjudged`` until a block of steps could be judged.
        reason: one sentence.
        blocks: how many blocks were judged.
        command: what to run when it does not fit.
    """

    verdict: Literal["fits", "misfit", "unjudged"]
    reason: str
    blocks: int = 0
    command: str | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A server at one moment, with what led there.

    Attributes:
        url: its address.
        time: when it was seen, as ISO 8601 in UTC.
        state: whether it speculates.
        reason: how that is known, or why not.
        server: what it is; None while none was seen.
        running: requests that are being decoded.
        waiting: requests in its queue.
        throughput: output tokens/s.
        window: the latest decode steps; None where there were none.
        depth: drafting depth that it keeps to.
        break_even: accept length from which on drafting pays at this batch size, by the step times
            that the plugin works with, else the profile's.
        vs_plain: what it makes of plain decoding's throughput, by the same.
        drift: whether it fits its profile; None without one.
        decisions: of autospec's plugin in the server, latest first.
        events: what happened while watching, latest first.
        notes: what could not be read or does not belong together, a line each.
    """

    url: str
    time: str
    state: State
    reason: str
    server: ServerView | None = None
    running: int = 0
    waiting: int = 0
    throughput: float = 0.0
    window: Window | None = None
    depth: int | None = None
    break_even: float | None = None
    vs_plain: float | None = None
    drift: DriftView | None = None
    decisions: tuple[StatusEvent, ...] = ()
    events: tuple[Event, ...] = ()
    notes: tuple[str, ...] = ()
    schema: int = schema.SCHEMA
