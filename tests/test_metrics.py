"""Formulas and units of every measured quantity."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import metrics
from autospec.errors import InputError, MeasureError
from autospec.measurement import Percentiles, RequestRecord
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


LIMITS = st.none() | st.floats(1e-3, 1e6) | st.integers(1, 10**6)
SLOS = st.tuples(LIMITS, LIMITS, LIMITS).filter(any).map(lambda limits: metrics.Slo(*limits))


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


@given(values=st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_ordered_values_within_the_data(values: list[float]) -> None:
    """They do not depend on the order of the data, and the median halves it."""
    found = metrics.percentiles(values)
    assert found == metrics.percentiles(reversed(values))
    assert found is not None
    assert min(values) <= found.p50 <= found.p90 <= found.p99 <= max(values)
    assert sum(value < found.p50 for value in values) <= len(values) / 2
    assert sum(value > found.p50 for value in values) <= len(values) / 2


def test_percentiles_lie_between_the_two_nearest_values() -> None:
    """Interpolated linearly; of nothing there is none."""
    assert metrics.percentiles(range(101)) == Percentiles(50, 90, 99)
    assert metrics.percentiles([0, 1000]) == Percentiles(500, 900, 990)
    assert metrics.percentiles([7]) == Percentiles(7, 7, 7)
    assert metrics.percentiles([]) is None


def test_latencies_of_many_requests_leave_out_failed_ones() -> None:
    """A quantity that no answered request has is left out."""
    failed = replace(RECORD, end_s=99.0, error="lost")
    found = metrics.latency_percentiles([RECORD, failed])
    assert found["e2e_latency_ms"].p99 == pytest.approx(1000)
    assert found["ttft_ms"].p50 == pytest.approx(200)
    assert found["tpot_ms"].p50 == pytest.approx(100)
    assert found["chunk_gap_ms"].p50 == pytest.approx(350)
    single = replace(RECORD, chunk_s=(10.2,), chunk_tokens=(8,))
    assert set(metrics.latency_percentiles([single])) == {"ttft_ms", "e2e_latency_ms"}
    assert metrics.latency_percentiles([failed]) == {}


@given(slo=SLOS, comma=st.booleans())
def test_limits_are_read_as_they_are_written(slo: metrics.Slo, comma: bool) -> None:
    """The text of an SLO is one that gives it back, with commas or blanks."""
    text = str(slo)
    assert metrics.Slo.parse(text.replace(" ", ", ") if comma else f"  {text}\n") == slo


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no limit given, must be one or more of ttft_ms, tpot_ms, e2e_latency_ms"),
        ("tpot_ms=20 ttft=200", r"'ttft=200' must be NAME=MS with a name of ttft_ms, "),
        ("ttft_ms", "'ttft_ms' must be NAME=MS"),
        ("ttft_ms=", "'ttft_ms=' must have a number of ms after '='"),
        ("ttft_ms=200ms", "'ttft_ms=200ms' must have a number"),
        ("ttft_ms=1 ttft_ms=2", "'ttft_ms=2' gives ttft_ms a second time"),
        ("ttft_ms=0", "ttft_ms is 0, must be above 0"),
        ("tpot_ms=-3", "tpot_ms is -3, must be above 0"),
        ("tpot_ms=nan", "tpot_ms is nan, must be above 0 and finite"),
        ("e2e_latency_ms=inf", "e2e_latency_ms is inf"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_its_word(text: str, message: str) -> None:
    """The error names the word, or the limit, and what would be right."""
    with pytest.raises(InputError, match=f"^SLO: {message}"):
        metrics.Slo.parse(text)


@given(text=st.text(max_size=40).filter(lambda text: "=" not in text))
def test_text_without_a_limit_is_refused_in_one_line(text: str) -> None:
    """Whatever is typed, the error is autospec's own."""
    with pytest.raises(InputError) as caught:
        metrics.Slo.parse(text)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "met"),
    [
        ("ttft_ms=201", True),
        ("ttft_ms=199", False),
        ("tpot_ms=101", True),
        ("tpot_ms=99", False),
        ("e2e_latency_ms=1001", True),
        ("e2e_latency_ms=999", False),
        ("ttft_ms=201 tpot_ms=101 e2e_latency_ms=1001", True),
        ("ttft_ms=201 tpot_ms=99 e2e_latency_ms=1001", False),
    ],
)
def test_a_request_meets_its_slo_only_within_every_limit(text: str, met: bool) -> None:
    """Each limit alone can be missed."""
    assert metrics.Slo.parse(text).met_by(RECORD) == met


def test_what_is_missing_is_missed_unless_it_cannot_be() -> None:
    """No first token misses its limit; a single chunk has no time per token to be too long."""
    silent = replace(RECORD, chunk_s=(), chunk_tokens=())
    single = replace(RECORD, chunk_s=(10.2,), chunk_tokens=(8,))
    assert not metrics.Slo(ttft_ms=1e9).met_by(silent)
    assert metrics.Slo(e2e_latency_ms=1e9).met_by(silent)
    assert metrics.Slo(tpot_ms=1e-9).met_by(single)
    assert not metrics.Slo(tpot_ms=1e9).met_by(replace(RECORD, error="lost"))


def test_attainment_is_of_the_requests_sent() -> None:
    """A failed request is a missed one; of none sent there is no share."""
    slo = metrics.Slo(e2e_latency_ms=1500)
    failed, slow = replace(RECORD, error="lost"), replace(RECORD, end_s=12.0)
    assert metrics.slo_attainment([RECORD, RECORD, failed, slow], slo) == 0.5
    assert metrics.slo_attainment([], slo) is None


def test_goodput_counts_good_requests_a_second_of_the_window() -> None:
    """One that crosses an end of the window counts by its part inside, a bad one not at all."""
    slo = metrics.Slo(e2e_latency_ms=1500)
    records = spans((0, 1), (1.5, 2.5), (3, 4), (2, 2), (2, 9))
    assert metrics.request_goodput(records, slo, (2.0, 4.0)) == pytest.approx((0.5 + 1 + 1) / 2)
    assert metrics.request_goodput([], slo, (0.0, 1.0)) == 0
    with pytest.raises(MeasureError, match="a window of 0 s"):
        metrics.request_goodput(records, slo, (1.0, 1.0))


@given(
    records=st.lists(request_records(), max_size=8),
    slo=SLOS,
    cuts=st.lists(st.floats(-1, 1100), min_size=3, max_size=3, unique=True).map(sorted),
)
def test_goodput_adds_up_and_is_bounded_by_attainment(
    records: list[RequestRecord], slo: metrics.Slo, cuts: list[float]
) -> None:
    """Neighbouring windows share no request, and all of time holds every good one."""
    begin, middle, end = cuts
    timed = [replace(r, end_s=r.start_s + 1) for r in records]

    def count(window_s: tuple[float, float]) -> float:
        return metrics.request_goodput(timed, slo, window_s) * (window_s[1] - window_s[0])

    both = count((begin, middle)) + count((middle, end))
    assert both == pytest.approx(count((begin, end)), abs=1e-6)
    share = metrics.slo_attainment(timed, slo) or 0
    assert count((-10.0, 9999.0)) == pytest.approx(share * len(timed))


@given(
    concurrency=st.integers(1, 6), rounds=st.integers(2, 6), length_s=st.floats(0.125, 4, width=16)
)
def test_goodput_of_a_closed_loop_that_meets_its_slo_is_its_request_rate(
    concurrency: int, rounds: int, length_s: float
) -> None:
    """With equal answers that is concurrency over the time of one."""
    edges = [n * length_s for n in range(rounds + 1)]
    pairs = [pair for pair in itertools.pairwise(edges) for _ in range(concurrency)]
    records = spans(*pairs)
    window = metrics.steady_window(records, concurrency)
    assert window is not None
    goodput = metrics.request_goodput(records, metrics.Slo(e2e_latency_ms=1e6), window)
    assert goodput == pytest.approx(concurrency / length_s)


def test_the_window_of_arrivals_is_from_the_first_to_the_last() -> None:
    """Whatever is still answered after the last one; two moments are needed."""
    assert metrics.arrival_window(spans((3, 9), (1, 2), (2, 99))) == (1, 3)
    assert metrics.arrival_window(spans((3, 9), (3, 5))) is None
    assert metrics.arrival_window([]) is None
