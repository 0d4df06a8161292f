"""What SGLang 0.5.23 says of the moment: the keys beside ``wire`` that watching reads."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from autospec.engine import wire
from autospec.engine.payloads import decode_json, item, mapping, numbers
from autospec.measurement import DecodeMoments

__all__ = ["Loads", "read_decode_tokens", "read_loads"]

_TOKENS: Final = re.compile(
    r'^sglang:realtime_tokens_total\{[^}]*mode="decode"[^}]*\} (\S+)$', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Loads:
    """A server's load, over all data-parallel ranks.

    Attributes:
        running: requests that are being decoded.
        waiting: requests in the queue.
        throughput: tokens/s over the server's latest interval between two log lines.
        moments: cumulative decode counters; None before the first decode step.
    """

    running: int
    waiting: int
    throughput: float
    moments: DecodeMoments | None


def read_loads(payload: bytes) -> Loads:
    """Read the load.

    Raises:
        WireError: it is not one of this engine version.
    """
    data = mapping(decode_json(payload, wire.LOADS), wire.LOADS)
    loads = [mapping(load, wire.LOADS) for load in item(data, "loads", list, wire.LOADS)]
    running, waiting = (
        sum(item(load, key, int, wire.LOADS) for load in loads)
        for key in ("num_running_reqs", "num_waiting_reqs")
    )
    rates = numbers([load.get("gen_throughput") for load in loads], float, wire.LOADS)
    return Loads(
        running=running,
        waiting=waiting,
        throughput=float(sum(rates)),
        moments=wire.read_decode_moments(payload),
    )


def read_decode_tokens(page: str) -> float | None:
    """Tokens that decode steps ever made, from the Prometheus page; None where it has no count."""
    found = [float(value) for value in _TOKENS.findall(page)]
    return sum(found) if found else None
