"""Whether a server speculates, from what it shows. Pure."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from autospec.control.costs import Costs, drafting_depth
from autospec.control.status import PluginStatus
from autospec.measurement import ServerDelta
from autospec.watch.reading import Reading
from autospec.watch.view import State

__all__ = ["Finding", "find_state", "settled_depth"]

#: Request steps without one right draft that say something.
_ENOUGH: Final = 50


class Finding(NamedTuple):
    """A state, the depth that goes with it, and how both are known."""

    state: State
    depth: int | None
    reason: str


def find_state(
    reading: Reading, counts: ServerDelta | None, costs: Costs | None, last: Finding | None
) -> Finding:
    """Find out whether the server speculates.

    Its plugin says so, or SGLang's adaptive rule does. Otherwise right drafts prove it, and where
    there are none, the profile's step times tell apart plain steps from drafts that are all wrong.

    Args:
        reading: the latest.
        counts: decode steps since the one before; None where there were none.
        costs: the profile's step times, if they are of this server.
        last: what was found before, which holds while nothing is decoded.
    """
    server, status = reading.server, reading.status
    if server.config.is_plain:
        return Finding("plain", 0, "the server was started without speculation")
    if status is not None and status.active:
        depth = settled_depth(status)
        state: State = "unknown" if depth is None else "speculating" if depth else "plain"
        return Finding(state, depth, f"autospec's plugin: {_latest_reason(status)}")
    if server.adaptive and server.num_steps is not None:
        state = "speculating" if server.num_steps else "plain"
        return Finding(state, server.num_steps, "SGLang's adaptive rule decides")
    return _by_steps(drafting_depth(server.config), counts, costs, last)


def settled_depth(status: PluginStatus) -> int | None:
    """The depth that the plugin keeps to, single steps to learn from left out."""
    settled = [event.depth for event in status.decisions if event.want == "settle"]
    return settled[-1] if settled else status.depth


def _latest_reason(status: PluginStatus) -> str:
    settled = [event.reason for event in status.decisions if event.want == "settle"]
    return settled[-1] if settled else status.reason


def _by_steps(
    depth: int, counts: ServerDelta | None, costs: Costs | None, last: Finding | None
) -> Finding:
    if counts is None:
        return last or Finding("unknown", depth, "no decode step was seen yet")
    request_steps = counts.num_steps * counts.batch_size
    if counts.num_tokens > request_steps * (1 + 1e-9) + 0.5:
        return Finding("speculating", depth, "drafts are found right")
    if request_steps < _ENOUGH:
        return last or Finding(
            "unknown", depth, f"only {request_steps:.0f} request steps were seen"
        )
    none = f"no draft was right in {request_steps:.0f} request steps"
    if costs is None or depth not in costs.depths:
        return Finding("unknown", depth, f"{none}: plain decoding, or drafts that are all wrong")
    plain, drafting = (
        abs(math.log(counts.step_time_ms / costs.time_ms(k, counts.batch_size))) for k in (0, depth)
    )
    if plain < drafting:
        return Finding("plain", 0, f"{none}, and steps take as long as plain ones")
    return Finding("speculating", depth, f"{none}, and steps take as long as with drafts")
