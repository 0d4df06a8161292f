"""One server's figures and two servers' comparison, readable at 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table

from autospec import metrics
from autospec.bench.plan import load_of
from autospec.bench.result import ArmResult, BenchResult, CompareResult, LoadFigures, Subject
from autospec.evidence import Interval, WorkloadSummary
from autospec.measurement import Percentiles, Run
from autospec.metrics import Slo
from autospec.report.tables import rate

__all__ = ["BenchView", "print_bench", "print_compare"]

_LATENCIES: Final = ("ttft_ms", "tpot_ms", "e2e_latency_ms", "chunk_gap_ms")
_ORDERS: Final = {
    "passes": "the servers took turns pass by pass",
    "launches": "launches took turns",
    "none": "nothing took turns: what changed in between is in the ratio",
}


class BenchView:
    """Shows what is going on, a line each.

    Args:
        console: where to write; standard error by default.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Show a line."""
        self._console.print(text, markup=False, highlight=False)

    def phase(self, text: str) -> None:
        """Show what begins."""
        self.note(text)

    def pass_done(self, name: str, run: Run, done: int, total: int) -> None:
        """Show a finished pass."""
        length = metrics.accept_length(run.records)
        accept = f", accept length {length:.2f}" if length else ""
        self.note(
            f"pass {done}/{total} {name} at load {load_of(run)}: "
            f"{run.output_throughput:.1f} tok/s{accept}"
        )
        for warning in run.warnings:
            self.note(f"    warning: {warning}")


def print_bench(result: BenchResult) -> None:
    """Show one server's figures on standard output."""
    console, arm = _console(), result.arm
    for line in (*_subject_lines(arm.subject), _workload_line(result.workload, arm.loads)):
        console.print(line, markup=False)
    console.print(_throughput_table(arm.loads))
    console.print(_latency_table(arm.loads))
    if result.slo is not None:
        console.print(_slo_table(arm.loads, result.slo))
    for line in (*_acceptance_lines(arm.loads), *_warning_lines(arm)):
        console.print(line, markup=False)


def print_compare(result: CompareResult) -> None:
    """Show two servers side by side on standard output."""
    console = _console()
    for label, arm in (("A", result.a), ("B", result.b)):
        for line in _subject_lines(arm.subject, label):
            console.print(line, markup=False)
    console.print(_workload_line(result.workload, result.a.loads), markup=False)
    console.print(_ratio_table(result))
    console.print(_side_by_side(result))
    for line in _compare_lines(result):
        console.print(line, markup=False)


def _throughput_table(loads: Sequence[LoadFigures]) -> Table:
    table = _table("load", "tok/s", "spread", "accept", "batch", "step ms", "client busy")
    for load in loads:
        table.add_row(
            load.load,
            rate(load.output_throughput.value),
            _spread(load.output_throughput),
            _optional(load.accept_length, ".2f"),
            _optional(load.batch_size, ".1f"),
            _optional(load.step_time_ms, ".1f"),
            f"{load.client_busy_share:.0%}",
        )
    return table


def _latency_table(loads: Sequence[LoadFigures]) -> Table:
    table = _table("load", "latency", "p50", "p90", "p99")
    table.columns[1].justify = "left"
    for load in loads:
        for place, name in enumerate(_LATENCIES):
            found: Percentiles | None = getattr(load, name)
            if found is not None:
                shown = map(_ms, (found.p50, found.p90, found.p99))
                table.add_row("" if place else load.load, name, *shown)
    return table


def _slo_table(loads: Sequence[LoadFigures], slo: Slo) -> Table:
    table = _table("load", "requests/s within SLO", "share within SLO")
    table.title, table.title_justify = str(slo), "left"
    for load in loads:
        table.add_row(
            load.load,
            _optional(load.request_goodput, ".3g"),
            _optional(load.slo_attainment, ".1%"),
        )
    return table


def _ratio_table(result: CompareResult) -> Table:
    table = _table("load", "A tok/s", "spread", "B tok/s", "spread", "A of B", "interval")
    for mine, other in zip(result.a.loads, result.b.loads, strict=True):
        ratio = result.loads[mine.load]
        table.add_row(
            mine.load,
            *(rate(mine.output_throughput.value), _spread(mine.output_throughput)),
            *(rate(other.output_throughput.value), _spread(other.output_throughput)),
            *(f"{ratio.value:.3f}x", f"{ratio.low:.3f}-{ratio.high:.3f}"),
        )
    return table


def _side_by_side(result: CompareResult) -> Table:
    table = _table("load", "figure", "A p50", "A p99", "B p50", "B p99")
    table.columns[1].justify = "left"
    for mine, other in zip(result.a.loads, result.b.loads, strict=True):
        for place, name in enumerate(_LATENCIES):
            a: Percentiles | None = getattr(mine, name)
            b: Percentiles | None = getattr(other, name)
            if a is not None and b is not None:
                shown = map(_ms, (a.p50, a.p99, b.p50, b.p99))
                table.add_row("" if place else mine.load, name, *shown)
        lengths = (mine.accept_length, other.accept_length)
        if any(lengths):
            a_length, b_length = (_optional(length, ".2f") for length in lengths)
            table.add_row("", "accept_length", a_length, "", b_length, "")
    return table


def _subject_lines(subject: Subject, label: str = "server") -> Iterator[str]:
    yield f"{label:<9} {subject.name}"
    if str(subject.config) != subject.name:
        yield f"          {subject.config}"
    where = f"sglang {subject.resolved.get('version')} on {subject.resolved.get('device')}"
    if subject.environment is not None:
        machine = subject.environment
        where += f", {machine.accelerator_count} x {machine.accelerator}"
    yield f"          {subject.model}, {where}"
    for line in subject.adjusted:
        yield f"          the server changed {line}"


def _workload_line(workload: WorkloadSummary, loads: Sequence[LoadFigures]) -> str:
    sizes = ", ".join(f"{load.requests} at load {load.load}" for load in loads)
    return f"prompts   {workload.name}, requests a pass: {sizes}"


def _acceptance_lines(loads: Sequence[LoadFigures]) -> Iterator[str]:
    for load in loads:
        if load.accept_rate_per_pos:
            shares = " ".join(f"{share:.2f}" for share in load.accept_rate_per_pos)
            yield f"accepted  first 1, 2, ... drafts right at load {load.load}: {shares}"


def _warning_lines(arm: ArmResult, label: str = "") -> Iterator[str]:
    for line in arm.warnings:
        yield f"warning   {label}{line}"


def _compare_lines(result: CompareResult) -> Iterator[str]:
    """What casts doubt on the verdict, and then the verdict: a terminal shows the end."""
    yield from _warning_lines(result.a, "A: ")
    yield from _warning_lines(result.b, "B: ")
    for line in result.differs:
        yield f"differs   {line} (A / B)"
    for line in result.unfair:
        yield f"unfair    {line} (A / B), allowed by --force"
    if result.same:
        yield "A/A test  A and B are the same: the ratio shows the machine, not a difference"
    ratio = result.ratio
    yield (
        f"verdict   A is {ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f}) of B: "
        f"{result.decision}"
    )
    yield f"          {result.reason}; {_ORDERS[result.order]}, {result.pairs} passes each"


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _spread(figure: Interval) -> str:
    return f"{rate(figure.low)}-{rate(figure.high)}"


def _optional(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _ms(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}"


def _console() -> Console:
    return Console(highlight=False, soft_wrap=False)
