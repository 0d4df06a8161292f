"""Record every configuration of the CPU demo at every load: what a search is tried on.

Plain decoding is launched first, halfway and last, so that the grid shows the machine's noise; the
other launches come in an order drawn from a seed. Several are measured side by side: their servers
all run, one is awake, and they take turns pass by pass, in turned order, so that a machine that
slows down slows all of them. A run that finds its file goes on with it: launches are written whole,
when their group is done.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from turns import asleep, awake

from autospec import demo, schema
from autospec.config import PLAIN, SpecConfig
from autospec.engine import cpu
from autospec.engine.args import Deployment, server_args
from autospec.engine.capabilities import detect
from autospec.engine.client import EngineClient
from autospec.engine.models import read_model
from autospec.engine.server import ServerProcess
from autospec.errors import AutospecError, DemoError
from autospec.evidence import Target, WorkloadSummary
from autospec.measure.harness import Harness, PassPlan
from autospec.measure.split import Parts, split
from autospec.measure.workload import Workload, read_workload
from autospec.measurement import Run
from autospec.tune.grid import Grid, GridHeader, GridRow, read_grid, row_of, text_of
from autospec.tuning.prepare import describe_environment

DRAFT: Final = Path("examples/demo-draft")
DATA: Final = Path("benchmarks/data/cpu_demo_grid.jsonl")
CHAINS: Final = (1, 2, 3, 4, 5)
#: (steps, topk, tokens) of trees, and (tokens, breadth) of n-gram drafting.
TREES: Final = (
    (2, 2, 4),
    (2, 4, 8),
    (3, 2, 8),
    (3, 4, 8),
    (3, 4, 16),
    (4, 2, 8),
    (4, 4, 16),
    (5, 2, 8),
)
NGRAMS: Final = ((4, 1), (4, 4), (8, 1), (8, 4), (12, 1), (12, 4), (16, 1), (16, 8))
#: Prompts of a pass by concurrency: three a slot, and as many of each of three classes.
PASS_PROMPTS: Final = {1: 3, 4: 12, 8: 24}
#: Of each class; split, they give as many of each to the part that is measured.
PROMPTS_PER_CLASS: Final = 31
MAX_NEW_TOKENS: Final = 28
WARMUP_NEW_TOKENS: Final = 4
DTYPE: Final = "bfloat16"


def configurations(draft: str) -> list[SpecConfig]:
    """Every configuration of the grid but plain decoding."""
    trees = [(steps, 1, steps + 1) for steps in CHAINS] + list(TREES)
    found = [SpecConfig("STANDALONE", *shape, draft_model=draft) for shape in trees]
    for tokens, breadth in NGRAMS:
        options = (("ngram_match_type", "BFS"), ("ngram_max_bfs_breadth", breadth))
        found.append(SpecConfig("NGRAM", num_draft_tokens=tokens, options=options))
    return found


def launches(draft: str, seed: int) -> tuple[SpecConfig, ...]:
    """All launches in their order: plain decoding first, halfway and last."""
    others = configurations(draft)
    random.Random(seed).shuffle(others)  # noqa: S311  # repeatable on purpose, hides no secret
    half = len(others) // 2
    return (PLAIN, *others[:half], PLAIN, *others[half:], PLAIN)


def prompt_lines(path: Path) -> str:
    """As many prompts of each class, the first of the file, with shortened answers."""
    counts: dict[str, int] = {}
    chosen = []
    for line in path.read_text(encoding="utf-8").splitlines():
        prompt = json.loads(line)
        counts[prompt["class"]] = counts.get(prompt["class"], 0) + 1
        if counts[prompt["class"]] <= PROMPTS_PER_CLASS:
            short = min(prompt["max_new_tokens"], MAX_NEW_TOKENS)
            chosen.append(json.dumps({**prompt, "max_new_tokens": short}) + "\n")
    return "".join(chosen)


def workload() -> Workload:
    """What the grid is recorded on, read as ``autospec tune`` would read it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / demo.prompts_path().name
        path.write_text(prompt_lines(demo.prompts_path()), encoding="utf-8")
        return replace(read_workload(path, default_max_new_tokens=MAX_NEW_TOKENS), name=path.name)


def header(parts: Parts, repeats: int, order: tuple[SpecConfig, ...]) -> GridHeader:
    """What the grid is recorded on; nothing in it says where on this machine."""
    model, draft = read_model(str(demo.model_path())), read_model(str(DRAFT))
    prompts = parts.workload.prompts
    labels = sorted({str(prompt.label) for prompt in prompts})
    return GridHeader(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=shlex.join(["python", *(_relative(word) for word in sys.argv)]),
        target=Target(demo.MODEL_NAME, model.digest, model.architecture, draft.digest),
        environment=describe_environment(detect("cpu"), DTYPE, 1),
        workload=WorkloadSummary(
            name=parts.workload.name,
            fingerprint=parts.workload.fingerprint,
            prompts={part.name: len(part.prompts) for part in (parts.warmup, parts.tune)},
            classes={label: sum(p.label == label for p in prompts) for label in labels},
            concurrencies=tuple(PASS_PROMPTS),
            temperature=parts.workload.sampling.temperature,
        ),
        concurrencies=tuple(PASS_PROMPTS),
        repeats=repeats,
        requests_per_pass=dict(PASS_PROMPTS),
        max_new_tokens=MAX_NEW_TOKENS,
        launches=order,
    )


async def one_pass(server: ServerProcess, parts: Parts, level: int, repeat: int) -> Run:
    """One pass, after a warm-up: the server has just been woken."""
    plan = PassPlan(
        (level,), requests_per_pass=PASS_PROMPTS[level], warmup_new_tokens=WARMUP_NEW_TOKENS
    )
    async with EngineClient(server.url) as client:
        harness = Harness(client, parts, plan=plan)
        await harness.render()
        return await harness.run_pass("tune", level, repeat)


def serving(config: SpecConfig, log: Path) -> ServerProcess:
    """A server that starts when it is entered."""
    deployment = Deployment(
        model=str(demo.model_path()),
        device="cpu",
        dtype=DTYPE,
        max_running_requests=48,
        # A share of the memory that the others of a group leave free; the pool has its own size.
        mem_fraction_static=0.6,
        max_total_tokens=16384,
        context_length=1024,
    )
    served = replace(config, draft_model=str(DRAFT.resolve())) if config.draft_model else config
    return ServerProcess(
        server_args(deployment, served), environment=cpu.environment(), log_path=log
    )


class Group:
    """Launches that are measured side by side.

    Args:
        configs: launch -> what it runs.
        parts: the prompts.
        repeats: passes of each cell.
    """

    def __init__(self, configs: dict[int, SpecConfig], parts: Parts, repeats: int) -> None:
        self._configs = configs
        self._parts = parts
        self._repeats = repeats
        self._rows: dict[int, list[GridRow]] = {number: [] for number in configs}
        self._failed: dict[int, str] = {}

    def record(self) -> dict[int, list[GridRow]]:
        """Launch -> its rows, or as many that say why there are none."""
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            servers: dict[int, ServerProcess] = {}
            for number, config in self._configs.items():
                with self._noting(number):
                    server = stack.enter_context(serving(config, folder / f"{number}.log"))
                    servers[number] = stack.enter_context(asleep(server))
            for repeat in range(self._repeats):
                for level in PASS_PROMPTS:
                    for number in sorted(servers, reverse=repeat % 2 == 1):
                        self._turn(number, servers[number], level, repeat)
        return {number: self._all_of(number) for number in self._configs}

    def _turn(self, number: int, server: ServerProcess, level: int, repeat: int) -> None:
        if number in self._failed:
            return
        with self._noting(number), awake(server):
            begin_s = time.monotonic()
            run = asyncio.run(one_pass(server, self._parts, level, repeat))
            row = row_of(
                number,
                self._configs[number],
                run,
                launch_s=server.launch_s or 0.0,
                pass_s=time.monotonic() - begin_s,
            )
            self._rows[number].append(row)

    @contextlib.contextmanager
    def _noting(self, number: int) -> Iterator[None]:
        """What goes wrong is the launch's result."""
        try:
            yield
        except AutospecError as error:
            reason = re.sub(r"(?<!\w)(/[\w.+-]+)+", "PATH", " ".join(str(error).split()))
            self._failed[number] = reason or type(error).__name__

    def _all_of(self, number: int) -> list[GridRow]:
        reason = self._failed.get(number)
        if reason is None:
            return self._rows[number]
        return [
            GridRow(number, self._configs[number], level, repeat, "failed", reason)
            for repeat in range(self._repeats)
            for level in PASS_PROMPTS
        ]


def begin(path: Path, head: GridHeader) -> Grid:
    """The grid as far as an earlier run recorded it, or a new one.

    Raises:
        DemoError: the file was recorded otherwise.
    """
    if not path.exists():
        schema.write_text(path, text_of([head]))
        return Grid(head, ())
    found = read_grid(path).without_parts()
    same = replace(found.header, created=head.created, command=head.command)
    if same != head:
        raise DemoError(f"{path}: recorded on another machine or otherwise; give another file")
    schema.write_text(path, text_of([found.header, *found.rows]))
    return found


def make(path: Path, grid: Grid, parts: Parts, most: int, together: int) -> None:
    """Make the launches that the file lacks, at most so many; a group adds its rows when done."""
    order, done = grid.header.launches, grid.finished()
    left = [n for n in range(len(order)) if n not in done][:most]
    begin_s = time.monotonic()
    for place in range(0, len(left), together):
        numbers = left[place : place + together]
        group = Group({n: order[n] for n in numbers}, parts, grid.header.repeats)
        for number, rows in group.record().items():
            with path.open("a", encoding="utf-8") as file:
                file.write(text_of(rows))
            sys.stderr.write(f"launch {number}, {order[number].label}: {shown(rows)}\n")
        made, used_s = place + len(numbers), time.monotonic() - begin_s
        rest_s = used_s / made * (len(left) - made)
        sys.stderr.write(
            f"{len(done) + made} of {len(order)} launches, {used_s / made:.0f} s each, about "
            f"{rest_s / 60:.0f} min more\n"
        )


def shown(rows: Sequence[GridRow]) -> str:
    """Median tokens/s at each load, or what went wrong."""
    if rows[0].reason:
        return rows[0].reason
    rates = {level: [r for r in rows if r.concurrency == level] for level in PASS_PROMPTS}
    return ", ".join(
        f"{sorted(row.output_throughput or 0.0 for row in found)[len(found) // 2]:.1f} @{level}"
        for level, found in rates.items()
    )


def _relative(word: str) -> str:
    return Path(word).name if Path(word).is_absolute() else word


def main() -> None:
    """Record what the file lacks."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", default=DATA, help="made, or gone on with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0, help="of the order of the launches")
    parser.add_argument("--launches", type=int, default=1000, help="make at most so many now")
    parser.add_argument(
        "--together", type=int, default=5, help="launches side by side; 3.5 GiB each"
    )
    parser.add_argument("--prompts", type=Path, help="only write the prompts, for autospec tune")
    options = parser.parse_args()
    if options.prompts:
        schema.write_text(options.prompts, prompt_lines(demo.prompts_path()))
        return
    parts = split(workload(), options.seed, max_concurrency=max(PASS_PROMPTS))
    order = launches(DRAFT.name, options.seed)
    grid = begin(options.file, header(parts, options.repeats, order))
    make(options.file, grid, parts, options.launches, options.together)


if __name__ == "__main__":
    main()
