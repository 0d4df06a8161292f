"""Formulas and units of every measured quantity."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import metrics
from autospec.measurement import RequestRecord
from tests.measure.strategies import request_records

RECORD = RequestRecord(
    prompt=0,
    start_s=10.0,
    end_s=11.0,
    chunk_s=(10.2, 10.4, 10.9),
    chunk_tokens=(1, 3, 8),
    completion_tokens=8,
    verify_ct=4,
    num_correct_drafts=3,
    correct_histogram=(2, 1, 1),
)


def spans(*pairs: tuple[float, float]) -> list[RequestRecord]:
    """Requests that did nothing but begin and end."""
    return [RequestRecord(n, start_s, end_s) for n, (start_s, end_s) in enumerate(pairs)]


def test_latencies_follow_their_formulas_in_milliseconds() -> None:
    """TTFT from sending, TPOT after the first chunk, end-to-end to the last byte, raw gaps."""
    assert metrics.ttft_ms(RECORD) == pytest.approx(200)
    assert metrics.tpot_ms(RECORD) == pytest.approx(100)
    assert metrics.e2e_latency_ms(RECORD) == pytest.approx(1000)
    assert metrics.chunk_gaps_ms(RECORD) == pytest.approx((200, 500))


@pytest.mark.parametrize("chunks", [0, 1])
def test_latencies_that_need_more_chunks_are_none(chunks: int) -> None:
    """No chunk has no TTFT; one chunk has no TPOT."""
    record = replace(
        RECORD, chunk_s=RECORD.chunk_s[:chunks], chunk_tokens=RECORD.chunk_tokens[:chunks]
    )
    assert (metrics.ttft_ms(record) is None) == (chunks == 0)
    assert metrics.tpot_ms(record) is None
    assert metrics.chunk_gaps_ms(record) == ()


def test_accept_length_counts_the_bonus_token_and_not_the_prefill_token() -> None:
    """One plus correct drafts a verify step, over all records; plain ones do not count."""
    plain = RequestRecord(1, 0.0, 1.0, completion_tokens=50)
    assert metrics.accept_length([RECORD, plain]) == pytest.approx(1 + 3 / 4)
    assert metrics.accept_length([plain]) is None


@given(records=st.lists(request_records(), max_size=6))
def test_accept_length_agrees_with_the_histogram(records: list[RequestRecord]) -> None:
    """Where counters and histogram tell the same story, so do the two ways to the length."""
    told = [
        replace(
            r,
            verify_ct=sum(r.correct_histogram),
            num_correct_drafts=sum(n * count for n, count in enumerate(r.correct_histogram)),
        )
        for r in records
    ]
    rates = metrics.accept_rate_per_pos(metrics.correct_histogram(told))
    length = metrics.accept_length(told)
    assert (length or 1.0) == pytest.approx(1 + sum(rates))


@given(histogram=st.lists(st.integers(0, 1000), max_size=8))
def test_accept_rates_are_shares_that_never_rise(histogram: list[int]) -> None:
    """A draft can only be right after all before it were."""
    rates = metrics.accept_rate_per_pos(histogram)
    assert all(0 <= rate <= 1 for rate in rates)
    assert list(rates) == sorted(rates, reverse=True)
    assert len(rates) == (len(histogram) - 1 if sum(histogram) else 0)


@given(
    durations=st.lists(st.floats(0.2, 5), min_size=1, max_size=40),
    concurrency=st.integers(1, 8),
    handover_s=st.floats(0, metrics.HANDOVER_S / 2),
)
def test_the_window_of_a_closed_loop_is_from_full_to_the_first_slot_left_free(
    durations: list[float], concurrency: int, handover_s: float
) -> None:
    """Fast handovers do not break it; filling up and draining are outside."""
    free_s = [0.0] * concurrency
    records = []
    for number, duration in enumerate(durations):
        slot = free_s.index(min(free_s))
        start_s = free_s[slot]
        free_s[slot] = start_s + duration + handover_s
        records.append(RequestRecord(number, start_s, start_s + duration))
    window = metrics.steady_window(records, concurrency)
    if len(durations) < concurrency:
        assert window is None
    else:
        assert window == pytest.approx((0.0, min(free_s) - handover_s))


@given(
    records=st.lists(request_records(), max_size=12).map(
        lambda records: [replace(r, end_s=r.start_s + (r.end_s - r.start_s) / 100) for r in records]
    ),
    concurrency=st.integers(1, 4),
)
def test_a_slot_in_the_window_is_in_use_or_just_about_to_be(
    records: list[RequestRecord], concurrency: int
) -> None:
    """At every moment of it, requests in flight and those just ended fill all slots."""
    window = metrics.steady_window(records, concurrency)
    if window is None:
        return
    begin_s, end_s = window
    assert begin_s in {r.start_s for r in records}
    assert end_s in {r.end_s for r in records}
    assert begin_s < end_s
    moments = sorted({begin_s, end_s, *(t for r in records for t in (r.start_s, r.end_s))})
    for left, right in itertools.pairwise(moments):
        if begin_s <= left < right <= end_s:
            middle = (left + right) / 2
            used = sum(r.start_s <= middle <= r.end_s for r in records)
            used += sum(middle - metrics.HANDOVER_S <= r.end_s < middle for r in records)
            assert used >= concurrency


def test_the_window_is_the_longest_stretch() -> None:
    """Of two stretches with both slots in use, the longer one counts."""
    records = spans((0, 10), (1, 2), (3, 9))
    assert metrics.steady_window(records, 2) == (3, 9)


def test_a_handover_that_takes_too_long_ends_the_window() -> None:
    """A slot free for longer than the handover time was not part of the load asked for."""
    assert metrics.steady_window(spans((0, 1), (1.04, 2)), 1) == (0, 2)
    assert metrics.steady_window(spans((0, 1), (1.06, 3)), 1) == (1.06, 3)


def test_requests_that_fail_at_once_make_no_window() -> None:
    """A stretch without length is no stretch."""
    assert metrics.steady_window(spans((1, 1), (1, 1)), 1) is None


def test_tokens_in_the_window_are_those_that_arrived_in_it() -> None:
    """A chunk at the begin is outside, one at the end inside."""
    assert metrics.tokens_in_window([RECORD], (10.2, 10.9)) == 7
    assert metrics.tokens_in_window([RECORD], (10.0, 10.2)) == 1
    assert metrics.tokens_in_window([RECORD, RECORD], (10.3, 10.5)) == 4
    assert metrics.tokens_in_window([RequestRecord(0, 10.0, 11.0)], (10.0, 11.0)) == 0


@given(
    records=st.lists(request_records(), max_size=6),
    cuts=st.lists(st.floats(-1, 1100), min_size=2, max_size=5).map(sorted),
)
def test_windows_side_by_side_share_no_token_and_lose_none(
    records: list[RequestRecord], cuts: list[float]
) -> None:
    """Counts of neighbouring windows add up to the count of both together."""
    whole = metrics.tokens_in_window(records, (cuts[0], cuts[-1]))
    pieces = (metrics.tokens_in_window(records, pair) for pair in itertools.pairwise(cuts))
    assert sum(pieces) == whole
    everything = metrics.tokens_in_window(records, (-1, 2000))
    assert everything == sum(r.completion_tokens for r in records)
