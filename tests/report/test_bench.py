"""A measuring's progress, and the sentences of a comparison."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from autospec.bench.result import ArmResult, CompareResult, LoadFigures, Made, Subject
from autospec.config import PLAIN
from autospec.evidence import Interval, WorkloadSummary
from autospec.measurement import Percentiles, RequestRecord, Run
from autospec.report.bench import BenchView, print_compare

FAST = 123456.7


def result(*, same: bool = False) -> CompareResult:
    """A comparison with figures as wide as they get."""
    latency = Percentiles(12345.6, 23456.7, 99999.9)
    load = LoadFigures(
        load="1024",
        throughputs=(FAST,) * 5,
        output_throughput=Interval(FAST, FAST, FAST),
        requests=2048,
        ttft_ms=latency,
        tpot_ms=latency,
        e2e_latency_ms=latency,
        chunk_gap_ms=latency,
        accept_length=7.5,
    )
    arm = ArmResult(Subject("PLAIN", PLAIN, "m", {"version": "0.5.23", "device": "cpu"}), (load,))
    ratio = Interval(10.123, 9.876, 10.321)
    return CompareResult(
        a=arm,
        b=arm,
        workload=WorkloadSummary("p.txt", "f", {"confirm": 9}, {}, (1024,), 0.0),
        made=Made("autospec compare", "2026-01-01T00:00:00+00:00", 0, 1.0),
        ratio=ratio,
        decision="faster",
        reason="faster after 5 pairs",
        loads={"1024": ratio},
        pairs=5,
        order="passes",
        same=same,
    )


def test_figures_fit_and_none_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However fast the servers and however slow the answers."""
    monkeypatch.setenv("COLUMNS", "80")
    print_compare(result())
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for figure in ("123457", "10.123x", "9.876-10.321", "100000", "7.50"):
        assert figure in shown
    assert "…" not in shown
    assert "A is 10.123x (9.876 to 10.321) of B: faster" in shown
    assert "A/A" not in shown


def test_a_server_against_itself_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    """Before its ratio."""
    print_compare(result(same=True))
    shown = capsys.readouterr().out
    assert shown.index("A/A test") < shown.index("verdict")


def test_each_pass_is_a_line_with_its_warnings() -> None:
    """On a terminal and elsewhere."""
    output = io.StringIO()
    record = RequestRecord(0, 0.0, 1.0, verify_ct=10, num_correct_drafts=5)
    run = Run("confirm", 4, 0, 12.34, (0.0, 1.0), 1.0, (record,), warnings=("a [warning]",))
    BenchView(Console(file=output, width=80)).pass_done("A", run, 1, 10)
    assert output.getvalue().splitlines() == [
        "pass 1/10 A at load 4: 12.3 tok/s, accept length 1.50",
        "    warning: a [warning]",
    ]
