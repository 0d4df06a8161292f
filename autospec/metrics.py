"""Every measured quantity: its name, formula and unit. Pure functions of records.

Names follow SGLang's rule: ``accept_*`` includes the bonus token, ``correct_*`` counts drafts only.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

from autospec.measurement import RequestRecord

__all__ = [
    "accept_length",
    "accept_rate_per_pos",
    "chunk_gaps_ms",
    "correct_histogram",
    "e2e_latency_ms",
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
