"""Every measured quantity: its name, formula and unit. Pure functions of records.

Names follow SGLang's rule: ``accept_*`` includes the bonus token, ``correct_*`` counts drafts only.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Self

from autospec.errors import InputError, MeasureError
from autospec.measurement import Percentiles, RequestRecord

__all__ = [
    "Slo",
    "accept_length",
    "accept_rate_per_pos",
    "arrival_window",
    "chunk_gaps_ms",
    "correct_histogram",
    "e2e_latency_ms",
    "latency_percentiles",
    "percentiles",
    "request_goodput",
    "slo_attainment",
    "steady_window",
    "tokens_in_window",
    "tpot_ms",
    "ttft_ms",
]


def accept_length(records: Iterable[RequestRecord]) -> float | None:
    """Mean tokens gained a verify step, bonus token included: ``1 + correct / verify_ct``.

    The server's own ``completion_tokens / verify_ct`` also counts the token from prefill, which no
    verify step made. None when nothing was verified.
    """
    verify_ct = num_correct = 0
    for record in records:
        verify_ct += record.verify_ct or 0
        num_correct += record.num_correct_drafts
    return 1 + num_correct / verify_ct if verify_ct else None


def correct_histogram(records: Iterable[RequestRecord]) -> tuple[int, ...]:
    """Verify steps by number of correct drafts, summed over records."""
    total: list[int] = []
    for record in records:
        total += [0] * (len(record.correct_histogram) - len(total))
        for correct, count in enumerate(record.correct_histogram):
            total[correct] += count
    return tuple(total)


def accept_rate_per_pos(histogram: Sequence[int]) -> tuple[float, ...]:
    """Share of verify steps whose first *d* drafts were right, for d = 1, 2, ...; never rising.

    Args:
        histogram: item *i* is the number of verify steps with *i* correct drafts.
    """
    steps = sum(histogram)
    if not steps:
        return ()
    return tuple(sum(histogram[depth:]) / steps for depth in range(1, len(histogram)))


def ttft_ms(record: RequestRecord) -> float | None:
    """Time to the first token, in ms; None when none arrived."""
    return (record.chunk_s[0] - record.start_s) * 1000 if record.chunk_s else None


def tpot_ms(record: RequestRecord) -> float | None:
    """Time per output token after the first chunk, in ms.

    ``(last chunk - first chunk) / (tokens after the first chunk)``; a first chunk of one token
    makes this the usual ``(end-to-end - TTFT) / (tokens - 1)``. None for a single chunk.
    """
    if len(record.chunk_s) < 2:
        return None
    tokens = record.chunk_tokens[-1] - record.chunk_tokens[0]
    return (record.chunk_s[-1] - record.chunk_s[0]) * 1000 / tokens if tokens else None


def e2e_latency_ms(record: RequestRecord) -> float:
    """From sending the request to its last byte, in ms."""
    return (record.end_s - record.start_s) * 1000


def chunk_gaps_ms(record: RequestRecord) -> tuple[float, ...]:
    """Gaps between streamed chunks, in ms; a chunk may hold several tokens."""
    pairs = zip(record.chunk_s, record.chunk_s[1:], strict=False)
    return tuple((later - earlier) * 1000 for earlier, later in pairs)


def percentiles(values: Iterable[float]) -> Percentiles | None:
    """Percentiles with linear interpolation between the two nearest values; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None

    def at(share: float) -> float:
        place = share * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (ordered[above] - ordered[below]) * (place - below)

    return Percentiles(at(0.5), at(0.9), at(0.99))


def latency_percentiles(records: Iterable[RequestRecord]) -> dict[str, Percentiles]:
    """``ttft_ms``, ``tpot_ms``, ``e2e_latency_ms`` and ``chunk_gap_ms`` of the answered requests.

    A name is left out when no request has a value. Gaps are those of all requests together.
    """
    answered = [record for record in records if record.error is None]
    values = {
        "ttft_ms": [value for r in answered if (value := ttft_ms(r)) is not None],
        "tpot_ms": [value for r in answered if (value := tpot_ms(r)) is not None],
        "e2e_latency_ms": [e2e_latency_ms(r) for r in answered],
        "chunk_gap_ms": [gap for r in answered for gap in chunk_gaps_ms(r)],
    }
    found = {name: percentiles(measured) for name, measured in values.items()}
    return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Slo:
    """Limits that a request has to meet, in ms; None where there is no limit.

    Raises:
        InputError: no limit at all, or one that is not a positive number.
    """

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_latency_ms: float | None = None

    def __post_init__(self) -> None:
        for name, limit in self._limits().items():
            if not 0 < limit < math.inf:
                raise InputError(f"SLO: {name} is {limit:g}, must be above 0 and finite, in ms")
        if not self._limits():
            raise InputError(f"SLO: no limit given, must be one or more of {_limit_names()}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read limits such as ``ttft_ms=200 tpot_ms=20``, separated by blanks or commas.

        Raises:
            InputError: a word that is no limit, with that word.
        """
        limits: dict[str, float] = {}
        for word in text.replace(",", " ").split():
            name, equals, value = word.partition("=")
            if name not in cls.__slots__ or not equals:
                raise InputError(f"SLO: {word!r} must be NAME=MS with a name of {_limit_names()}")
            if name in limits:
                raise InputError(f"SLO: {word!r} gives {name} a second time")
            try:
                limits[name] = float(value)
            except ValueError:
                raise InputError(f"SLO: {word!r} must have a number of ms after '='") from None
        return cls(**limits)

    def __str__(self) -> str:
        """The text that ``parse`` reads."""
        return " ".join(f"{name}={limit!r}" for name, limit in self._limits().items())

    def met_by(self, record: RequestRecord) -> bool:
        """Whether a request was answered within every limit.

        A request that failed, or that had a limit on its first token and got none, missed. An
        answer in a single chunk has no time per token and meets any limit on it.
        """
        if record.error is not None:
            return False
        measured = {
            "ttft_ms": ttft_ms(record) if record.chunk_s else math.inf,
            "tpot_ms": tpot_ms(record) or 0.0,
            "e2e_latency_ms": e2e_latency_ms(record),
        }
        return all((measured[name] or 0.0) <= limit for name, limit in self._limits().items())

    def _limits(self) -> dict[str, float]:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: limit for name, limit in given.items() if limit is not None}


def _limit_names() -> str:
    return ", ".join(field.name for field in fields(Slo))


def slo_attainment(records: Sequence[RequestRecord], slo: Slo) -> float | None:
    """Share of the requests sent that met every limit, failed ones missed; None of no request."""
    return sum(map(slo.met_by, records)) / len(records) if records else None


def request_goodput(
    records: Iterable[RequestRecord], slo: Slo, window_s: tuple[float, float]
) -> float:
    """Requests answered within their SLO, per second of the window.

    A request that was in flight at an end of the window counts by the share of its time that lay
    inside, so that the figure does not depend on where in a request the window begins and ends.

    Args:
        records: one for each request sent, failed ones too.
        slo: the limits.
        window_s: begin and end on the records' clock.

    Raises:
        MeasureError: the window has no length.
    """
    begin_s, end_s = window_s
    if begin_s >= end_s:
        raise MeasureError(f"a window of {end_s - begin_s:g} s has no goodput")
    met = sum(_share_inside(r, begin_s, end_s) for r in records if slo.met_by(r))
    return met / (end_s - begin_s)


def _share_inside(record: RequestRecord, begin_s: float, end_s: float) -> float:
    length_s = record.end_s - record.start_s
    if length_s <= 0:
        return float(begin_s <= record.start_s <= end_s)
    inside_s = min(record.end_s, end_s) - max(record.start_s, begin_s)
    return max(0.0, inside_s) / length_s


def arrival_window(records: Sequence[RequestRecord]) -> tuple[float, float] | None:
    """From the first to the last request sent, as (begin, end) in s: an open loop's window.

    What the server does after the last arrival is draining, not the rate asked for. The server is
    empty at the begin, so a window should be many answers long. None without two different times.
    """
    starts = [record.start_s for record in records]
    return (min(starts), max(starts)) if len(set(starts)) > 1 else None


def steady_window(records: Sequence[RequestRecord], concurrency: int) -> tuple[float, float] | None:
    """The longest stretch with at least ``concurrency`` requests in flight, as (begin, end) in s.

    A closed loop fills up at its start and drains at its end; neither is the load asked for. None
    when the concurrency was never reached.
    """
    changes = sorted(
        [(record.start_s, 1) for record in records] + [(record.end_s, -1) for record in records]
    )
    best: tuple[float, float] | None = None
    longest_s, begin_s, in_flight = 0.0, 0.0, 0
    for moment, change in _merge_handovers(changes):
        before, in_flight = in_flight, in_flight + change
        if before < concurrency <= in_flight:
            begin_s = moment
        elif in_flight < concurrency <= before and moment - begin_s > longest_s:
            longest_s, best = moment - begin_s, (begin_s, moment)
    return best


#: A closed loop sends the next request within this time of the last one's end, in seconds.
HANDOVER_S = 0.05


def _merge_handovers(changes: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """Drop an end that a start follows at once, with that start: the slot never was free."""
    kept: list[tuple[float, int]] = []
    pending: list[tuple[float, int]] = []
    for moment, change in changes:
        while pending and moment - pending[0][0] > HANDOVER_S:
            kept.append(pending.pop(0))
        if change < 0:
            pending.append((moment, change))
        elif pending:
            pending.pop(0)
        else:
            kept.append((moment, change))
    return sorted(kept + pending)


def tokens_in_window(records: Iterable[RequestRecord], window_s: tuple[float, float]) -> int:
    """Output tokens that arrived after the window's begin and not after its end."""
    begin, end = window_s
    total = 0
    for record in records:
        last = bisect.bisect_right(record.chunk_s, end)
        first = bisect.bisect_right(record.chunk_s, begin)
        tokens = (0, *record.chunk_tokens)
        total += tokens[last] - tokens[first]
    return total
