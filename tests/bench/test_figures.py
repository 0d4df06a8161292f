"""From passes to the figures of one load."""

from __future__ import annotations

import dataclasses

import pytest

from autospec.bench.figures import arm_result, throughputs
from autospec.bench.result import Subject
from autospec.config import PLAIN
from autospec.measurement import RequestRecord, Run
from autospec.metrics import Slo

SUBJECT = Subject("PLAIN", PLAIN, "m", {})


def record(ttft_s: float) -> RequestRecord:
    """Four tokens, 10 ms apart after the first; the request takes a second."""
    chunks = tuple(ttft_s + 0.01 * place for place in range(4))
    return RequestRecord(
        0, 0.0, 1.0, chunk_s=chunks, chunk_tokens=(1, 2, 3, 4), verify_ct=2, num_correct_drafts=1
    )


def one_pass(
    repeat: int, rate: float, *records: RequestRecord, window_s: float = 1.0, warning: str = ""
) -> Run:
    """A pass at concurrency 2."""
    return Run(
        part="confirm",
        concurrency=2,
        repeat=repeat,
        output_throughput=rate,
        window_s=(0.0, window_s),
        duration_s=window_s,
        records=records,
        client_busy_share=0.1 * (repeat + 1),
        warnings=(warning,) if warning else (),
    )


def test_each_figure_is_that_of_all_passes() -> None:
    """Latencies over all requests, throughput over passes, the worst busy share."""
    runs = [one_pass(1, 20.0, record(0.3)), one_pass(0, 10.0, record(0.1))]
    (load,) = arm_result(SUBJECT, runs, None).loads
    assert load.throughputs == (10.0, 20.0)
    assert (load.output_throughput.low, load.output_throughput.value) == (10.0, 15.0)
    assert load.ttft_ms is not None
    assert load.ttft_ms.p50 == pytest.approx(200)
    assert load.tpot_ms is not None
    assert load.tpot_ms.p99 == pytest.approx(10)
    assert load.accept_length == 1.5
    assert load.client_busy_share == 0.2
    assert (load.request_goodput, load.slo_attainment) == (None, None)


def test_goodput_weighs_passes_by_their_windows() -> None:
    """One of one in 1 s and none of one in 3 s: a quarter of a request a second."""
    runs = [one_pass(0, 1.0, record(0.1)), one_pass(1, 1.0, record(0.5), window_s=3.0)]
    (load,) = arm_result(SUBJECT, runs, Slo(ttft_ms=200)).loads
    assert load.request_goodput == pytest.approx(0.25)
    assert load.slo_attainment == 0.5


def test_rates_and_concurrencies_are_loads_apart() -> None:
    """In the order in which they came."""
    closed = one_pass(0, 1.0, record(0.1))
    opened = dataclasses.replace(closed, request_rate=0.5)
    found = arm_result(SUBJECT, [closed, opened], None)
    assert [load.load for load in found.loads] == ["2", "0.5/s"]
    assert throughputs([closed, opened], "0.5/s") == (1.0,)


def test_warnings_that_differ_in_numbers_are_one_line() -> None:
    """With how many passes had one; other warnings stand apart."""
    runs = [
        one_pass(0, 1.0, record(0.1), warning="3 of 4 were slow"),
        one_pass(1, 1.0, record(0.1), warning="1.5 of 4 were slow"),
        one_pass(2, 1.0, record(0.1), warning="all were slow"),
    ]
    assert arm_result(SUBJECT, runs, None, warnings=("old", "old")).warnings == (
        "old",
        "load 2, 2 of 3 passes: 3 of 4 were slow",
        "load 2, 1 of 3 passes: all were slow",
    )
