"""The recorder of the CPU demo's grid, without an engine."""

from __future__ import annotations

import contextlib
import importlib.util
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.errors import DemoError, LaunchError
from autospec.evidence import Environment, Target, WorkloadSummary
from autospec.measure.split import split
from autospec.tune.grid import GridHeader, GridRow, read_grid

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def recorder() -> Iterator[ModuleType]:
    """The script as a module, which finds its neighbours as it would as a program."""
    spec = importlib.util.spec_from_file_location(
        "record_grid", ROOT / "benchmarks" / "record_grid.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        spec.loader.exec_module(module)
        yield module


@pytest.fixture
def header(recorder: ModuleType) -> GridHeader:
    """A grid of four launches."""
    order = recorder.launches("demo-draft", 0)
    return GridHeader(
        created="2026-01-01T00:00:00+00:00",
        command="python benchmarks/record_grid.py",
        target=Target("a-model", "d", "LlamaForCausalLM", "e"),
        environment=Environment("cpu", "a processor", 1, "0.5.23", "bfloat16", 1),
        workload=WorkloadSummary("p.jsonl", "f", {"tune": 6}, {}, (1, 4, 8), 0.0),
        concurrencies=tuple(recorder.PASS_PROMPTS),
        repeats=2,
        requests_per_pass=dict(recorder.PASS_PROMPTS),
        max_new_tokens=28,
        launches=(*order[:3], PLAIN),
    )


class Quick:
    """A group whose launches make every pass at once."""

    def __init__(self, configs: dict[int, SpecConfig], _parts: object, repeats: int) -> None:
        self._configs, self._repeats = configs, repeats

    def record(self) -> dict[int, list[GridRow]]:
        """All rows of each launch."""
        return {
            number: [
                GridRow(number, config, level, repeat, "complete", output_throughput=1.0 + number)
                for repeat in range(self._repeats)
                for level in (1, 4, 8)
            ]
            for number, config in self._configs.items()
        }


def test_grid_has_enough_cells_and_plain_first_halfway_and_last(recorder: ModuleType) -> None:
    """At least sixty cells, each configuration once but plain decoding, in an order by seed."""
    order = recorder.launches("demo-draft", 0)
    counts = Counter(order)
    assert len(counts) * len(recorder.PASS_PROMPTS) >= 60
    assert [place for place, config in enumerate(order) if config.is_plain] == [
        0,
        len(order) // 2 - (len(order) % 2 == 0),
        len(order) - 1,
    ]
    assert all(count == (3 if config.is_plain else 1) for config, count in counts.items())
    assert order == recorder.launches("demo-draft", 0) != recorder.launches("demo-draft", 1)
    assert {c.draft_model for c in order} == {None, "demo-draft"}


def test_every_pass_has_as_many_prompts_of_each_class(recorder: ModuleType) -> None:
    """So that one class weighs as much as another in every figure."""
    parts = split(recorder.workload(), 0, max_concurrency=max(recorder.PASS_PROMPTS))
    for count in recorder.PASS_PROMPTS.values():
        for repeat in range(3):
            found = Counter(prompt.label for prompt in parts.tune.slice(repeat, count))
            assert set(found.values()) == {count // 3}
    assert all(p.max_new_tokens <= recorder.MAX_NEW_TOKENS for p in parts.workload.prompts)


def test_interrupted_recording_goes_on_with_the_launches_that_lack(
    recorder: ModuleType,
    header: GridHeader,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A launch that was cut off is made again, a whole one is not."""
    monkeypatch.setattr(recorder, "Group", Quick)
    path = tmp_path / "grid.jsonl"
    recorder.make(path, recorder.begin(path, header), None, 2, 2)
    assert "2 of 4 launches" in capsys.readouterr().err
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-30], encoding="utf-8")
    again = recorder.begin(path, header)
    assert again.finished() == {0}
    recorder.make(path, again, None, 9, 2)
    grid = read_grid(path)
    assert grid.finished() == {0, 1, 2, 3}
    assert len(grid.rows) == 4 * 6


def test_grid_of_another_kind_is_not_gone_on_with(
    recorder: ModuleType, header: GridHeader, tmp_path: Path
) -> None:
    """Figures of two machines or workloads are never mixed."""
    path = tmp_path / "grid.jsonl"
    recorder.begin(path, header)
    other = replace(header, repeats=3)
    with pytest.raises(DemoError, match="recorded on another machine or otherwise"):
        recorder.begin(path, other)


def test_failed_launch_has_its_rows_without_a_path(
    recorder: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every cell of a grid says something, and nothing of where it was recorded."""

    def refuse(*_: object, **__: object) -> None:
        raise LaunchError(f"out of memory\nsee {tmp_path}/server.log")

    monkeypatch.setattr(recorder, "ServerProcess", refuse)
    monkeypatch.setattr(recorder.demo, "model_path", lambda: tmp_path)
    group = recorder.Group({1: SpecConfig("NGRAM", num_draft_tokens=8)}, None, 2)
    rows = group.record()[1]
    assert [(row.concurrency, row.repeat) for row in rows] == [
        (level, repeat) for repeat in range(2) for level in recorder.PASS_PROMPTS
    ]
    assert {(row.status, row.reason) for row in rows} == {("failed", "out of memory see PATH")}
    assert recorder.shown(rows) == "out of memory see PATH"


def test_launches_take_turns_and_one_that_ends_leaves_the_others(
    recorder: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass by pass, in turned order; one server is awake; half a launch counts for nothing."""
    turns: list[tuple[int, int, int]] = []
    up: list[int] = []

    class Server:
        def __init__(self, number: int) -> None:
            self.number, self.launch_s = number, 1.0

    @contextlib.contextmanager
    def awake(server: Server) -> Iterator[None]:
        up.append(server.number)
        yield
        up.remove(server.number)

    async def one_pass(server: Server, _parts: object, level: int, repeat: int) -> None:
        assert up == [server.number]
        turns.append((repeat, level, server.number))
        if (server.number, repeat, level) == (5, 1, 4):
            up.remove(5)
            raise LaunchError("the server ended")

    def row_of(number: int, config: SpecConfig, run: None, **times: float) -> GridRow:
        assert run is None
        assert times["launch_s"] == 1.0
        repeat, level, _ = turns[-1]
        return GridRow(number, config, level, repeat, "complete", output_throughput=1.0)

    configs = {4: PLAIN, 5: SpecConfig("NGRAM", num_draft_tokens=8)}
    numbers = iter(configs)
    monkeypatch.setattr(
        recorder, "serving", lambda *_: contextlib.nullcontext(Server(next(numbers)))
    )
    monkeypatch.setattr(recorder, "asleep", contextlib.nullcontext)
    monkeypatch.setattr(recorder, "awake", awake)
    monkeypatch.setattr(recorder, "one_pass", one_pass)
    monkeypatch.setattr(recorder, "row_of", row_of)
    rows = recorder.Group(configs, None, 2).record()
    assert turns == [
        *((0, level, number) for level in (1, 4, 8) for number in (4, 5)),
        *((1, level, number) for level in (1, 4) for number in (5, 4)),
        (1, 8, 4),
    ]
    assert [row.status for row in rows[4]] == ["complete"] * 6
    assert [(row.status, row.reason) for row in rows[5]] == [("failed", "the server ended")] * 6
