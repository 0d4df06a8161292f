"""A recorded grid at rest: what is written is read, and what is no grid is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.errors import SchemaError
from autospec.evidence import Environment, Target, WorkloadSummary
from autospec.measurement import RequestRecord, Run, ServerDelta
from autospec.tune.classes import class_figures, class_throughput, labels
from autospec.tune.grid import Grid, GridHeader, GridRow, read_grid, row_of, text_of

NGRAM = SpecConfig.parse("NGRAM tokens=8 breadth=1")
TREE = SpecConfig.parse("STANDALONE steps=3 topk=4 tokens=8 draft=demo-draft")
HEADER = GridHeader(
    created="2026-01-01T00:00:00+00:00",
    command="python benchmarks/record_grid.py grid.jsonl",
    target=Target("a-model", "d", "LlamaForCausalLM", "e"),
    environment=Environment("cpu", "a processor", 1, "0.5.23", "bfloat16", 1),
    workload=WorkloadSummary("p.jsonl", "f", {"tune": 6}, {"chat": 3, "mail": 3}, (1, 4), 0.0),
    concurrencies=(1, 4),
    repeats=2,
    requests_per_pass={1: 3, 4: 9},
    max_new_tokens=40,
    launches=(PLAIN, TREE, NGRAM, PLAIN),
)


def record(label: str | None, seconds: float, tokens: int, correct: int = 0) -> RequestRecord:
    """A request of a class that took so long; every verify step found as many drafts right."""
    return RequestRecord(
        prompt=0,
        label=label,
        start_s=1.0,
        end_s=1.0 + seconds,
        chunk_s=(1.5, 1.0 + seconds),
        chunk_tokens=(1, tokens),
        completion_tokens=tokens,
        verify_ct=4,
        num_correct_drafts=4 * correct,
        correct_histogram=(*[0] * correct, 4),
    )


def run(*records: RequestRecord, concurrency: int = 1, repeat: int = 0) -> Run:
    """A pass of these requests."""
    server = ServerDelta(10, 1.0, 40.0, 30)
    return Run("tune", concurrency, repeat, 20.0, (1.0, 3.0), 2.0, records, server)


def rows(launch: int, config: SpecConfig) -> list[GridRow]:
    """Every row of a launch; throughput grows with load and repeat."""
    return [
        GridRow(
            launch,
            config,
            level,
            repeat,
            "complete",
            output_throughput=10.0 * level + repeat + launch,
        )
        for repeat in range(2)
        for level in (1, 4)
    ]


def test_pass_becomes_a_row_with_its_classes() -> None:
    """Acceptance, step time and the figures of each class are those of the pass."""
    made = run(record("mail", 1.0, 20, correct=3), record("chat", 2.0, 10), record(None, 1.0, 5))
    row = row_of(1, TREE, made, launch_s=28.0, pass_s=4.0)
    assert (row.status, row.output_throughput, row.launch_s, row.pass_s) == (
        "complete",
        20.0,
        28.0,
        4.0,
    )
    assert row.server == made.server
    assert row.correct_histogram == (8, 0, 0, 4)
    assert row.accept_length == 2.0
    assert [(c.label, c.requests, c.accept_length) for c in row.classes] == [
        ("chat", 1, 1.0),
        ("mail", 1, 4.0),
    ]
    assert [c.output_throughput for c in row.classes] == [5.0, 20.0]


def test_grid_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Header and rows come back, numbers to six digits, a failed launch with its reason."""
    made = row_of(
        1, TREE, run(record("mail", 1 / 3, 20, correct=3)), launch_s=28.123456789, pass_s=4.0
    )
    failed = GridRow(2, NGRAM, 4, 1, "failed", "out of memory")
    path = tmp_path / "grid.jsonl"
    path.write_text(text_of([HEADER, made, failed]), encoding="utf-8")
    grid = read_grid(path)
    assert grid.header == HEADER
    assert grid.rows[1] == failed
    assert grid.rows[0].launch_s == 28.1235
    assert grid.rows[0].classes[0].correct_histogram == (0, 0, 0, 4)
    assert text_of([grid.header, *grid.rows]) == path.read_text(encoding="utf-8")


def test_cell_joins_the_launches_of_plain_decoding() -> None:
    """Plain decoding's figure at a load is the median over all its launches."""
    grid = Grid(HEADER, (*rows(0, PLAIN), *rows(1, TREE), *rows(3, PLAIN)))
    assert grid.configs == (PLAIN, NGRAM, TREE)
    assert len(grid.cell(PLAIN, 4)) == 4
    assert grid.throughput(PLAIN, 1) == 12.0
    assert grid.throughput(TREE, 4) == 41.5
    assert grid.throughput(NGRAM, 4) is None


def test_part_of_a_launch_is_made_again() -> None:
    """Only a launch of which every row is there counts as recorded."""
    grid = Grid(HEADER, (*rows(0, PLAIN), *rows(1, TREE)[:3]))
    assert grid.finished() == {0}
    assert grid.without_parts().rows == tuple(rows(0, PLAIN))


def test_line_cut_off_by_a_crash_is_left_out(tmp_path: Path) -> None:
    """What ends without a line feed was not written whole."""
    path = tmp_path / "grid.jsonl"
    path.write_text(text_of([HEADER, *rows(0, PLAIN)])[:-20], encoding="utf-8")
    assert len(read_grid(path).rows) == 3


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", "is empty"),
        ("[1]\n", "line 1: must be a mapping"),
        ("{\n", "line 1: not JSON"),
        (text_of([HEADER]).replace('"schema":1', '"schema":2'), "schema 2 is newer"),
        (text_of([HEADER]).replace("autospec-grid", "other"), "kind is 'other'"),
        (text_of([HEADER, replace(rows(0, PLAIN)[0], launch=1)]), "line 2: PLAIN is not launch 1"),
        (text_of([HEADER, replace(rows(0, PLAIN)[0], launch=9)]), "line 2: PLAIN is not launch 9"),
        (text_of([HEADER, replace(rows(0, PLAIN)[0], repeat=2)]), "repeat 2 is not in the header"),
        (text_of([HEADER, rows(0, PLAIN)[0]]).replace('"complete"', '"failed"'), "of a failed row"),
    ],
)
def test_what_is_no_grid_is_refused_with_its_line(tmp_path: Path, lines: str, said: str) -> None:
    """The message names the file and the line."""
    path = tmp_path / "grid.jsonl"
    path.write_text(lines, encoding="utf-8")
    with pytest.raises(SchemaError, match=said) as raised:
        read_grid(path)
    assert str(path) in str(raised.value)


def test_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    """There is no grid to read."""
    with pytest.raises(SchemaError, match=r"none\.jsonl: cannot be read"):
        read_grid(tmp_path / "none.jsonl")


times = st.lists(st.tuples(st.floats(0.01, 50), st.integers(1, 500)), min_size=1, max_size=20)


@given(mail=times, chat=times, concurrency=st.integers(1, 64))
def test_classes_are_shares_of_the_whole(
    mail: list[tuple[float, int]], chat: list[tuple[float, int]], concurrency: int
) -> None:
    """Weighted by their time in flight, the classes' figures are that of all requests."""
    records = [record("mail", *each) for each in mail] + [record("chat", *each) for each in chat]
    made = run(*records, concurrency=concurrency)
    assert labels([made]) == ("chat", "mail")
    seconds = {"mail": sum(s for s, _ in mail), "chat": sum(s for s, _ in chat)}
    shares = sum(c.output_throughput * seconds[c.label] for c in class_figures(made))
    whole = class_throughput(records, concurrency) * sum(seconds.values())
    assert shares == pytest.approx(whole, rel=1e-6)


def test_no_time_is_no_throughput() -> None:
    """Nothing is divided by nothing."""
    assert class_throughput([], 4) == 0.0
