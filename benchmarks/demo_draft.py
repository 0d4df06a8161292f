"""The demo's drafter through the real engine, against n-gram drafting and plain decoding.

Every arm is launched once there and once back (A B C C B A), so that what slowly changes on the
machine falls on all arms alike. Each launch makes one pass for each class of the demo's prompts at
each concurrency; a ratio is between two passes of one round, over the same prompts. With
``--lossless`` each arm instead answers 100 prompts in float32, and its tokens must be those of
plain decoding.

Each launch adds a line to the results file; a run that finds its line there leaves it out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autospec import demo, metrics
from autospec.config import PLAIN, SpecConfig
from autospec.engine import cpu
from autospec.engine.args import Deployment, server_args
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.measure.load import ClosedLoop, Load, run_load
from autospec.measure.summary import summarize
from autospec.measurement import Request

CONCURRENCIES = (1, 4, 8)
#: Prompts of one pass by concurrency: two a slot at least, and enough tokens for a figure.
PASS_PROMPTS = {1: 4, 4: 10, 8: 16}
WARMUP_NEW_TOKENS = 24
LOSSLESS_PROMPTS = 100
LOSSLESS_IN_FLIGHT = 16


def arms(draft: str) -> dict[str, SpecConfig]:
    """Every configuration by the name that the tables use."""
    ngram = (("ngram_match_type", "BFS"), ("ngram_max_bfs_breadth", 1))
    found = {"plain": PLAIN, "ngram 8": SpecConfig("NGRAM", num_draft_tokens=8, options=ngram)}
    for steps in (1, 2, 3, 5):
        found[f"chain {steps}"] = SpecConfig("STANDALONE", steps, 1, steps + 1, draft)
    for steps, topk, tokens in ((3, 4, 8), (4, 2, 8)):
        found[f"tree {steps}/{topk}/{tokens}"] = SpecConfig(
            "STANDALONE", steps, topk, tokens, draft
        )
    return found


@contextmanager
def serving(config: SpecConfig, dtype: str) -> Iterator[ServerProcess]:
    """One server on the demo model."""
    deployment = Deployment(
        model=str(demo.model_path()),
        device="cpu",
        dtype=dtype,
        max_running_requests=48,
        mem_fraction_static=0.2,
        context_length=1024,
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(
            server_args(deployment, config),
            environment=cpu.environment(),
            log_path=Path(folder) / "server.log",
        ) as server,
    ):
        yield server


async def rendered(client: EngineClient) -> list[Request]:
    """The demo's prompts as token ids."""
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()
    return [
        Request(
            place,
            await client.tokenize(messages=prompt["messages"]),
            prompt["max_new_tokens"],
            prompt["class"],
        )
        for place, prompt in enumerate(map(json.loads, lines))
    ]


async def throughput(url: str, turn: int) -> list[dict[str, Any]]:
    """One pass for each class and concurrency."""
    async with EngineClient(url) as client:
        requests = await rendered(client)
        passes = []
        for label in sorted({str(request.label) for request in requests}):
            own = [request for request in requests if request.label == label]
            for concurrency in CONCURRENCIES:
                count = min(PASS_PROMPTS[concurrency], len(own))
                first = turn * count
                chosen = [own[(first + i) % len(own)] for i in range(count)]
                rest = [r for r in own if r not in chosen] or own
                load = await one_pass(client, chosen, rest, concurrency)
                run = summarize(load, label, ClosedLoop(concurrency), turn)
                passes.append(
                    {
                        "class": label,
                        "concurrency": concurrency,
                        "throughput": run.output_throughput,
                        "accept_length": metrics.accept_length(run.records),
                    }
                )
    return passes


async def one_pass(
    client: EngineClient, chosen: Sequence[Request], rest: Sequence[Request], concurrency: int
) -> Load:
    """Warm up on other prompts, forget them, send the chosen ones in a closed loop."""
    warmup = [rest[place % len(rest)] for place in range(2 * concurrency)]
    short = [replace(request, max_new_tokens=WARMUP_NEW_TOKENS) for request in warmup]
    await client.flush()
    await run_load(client.generate, short, ClosedLoop(concurrency))
    await client.flush()
    return await run_load(client.generate, chosen, ClosedLoop(concurrency))


async def answered(url: str) -> list[list[int]]:
    """The token ids of the answers to the first prompts of the demo."""
    slots = asyncio.Semaphore(LOSSLESS_IN_FLIGHT)
    async with EngineClient(url) as client:

        async def one(request: Request) -> list[int]:
            async with slots:
                return list(await client.answer(request))

        requests = (await rendered(client))[:LOSSLESS_PROMPTS]
        await client.flush()
        return list(await asyncio.gather(*map(one, requests)))


def measure(path: Path, draft: str, launches: int | None) -> list[dict[str, Any]]:
    """Make the launches that the results file does not hold yet, or the next few of them."""
    names = list(arms(draft))
    done = read(path)
    most = len(done) + launches if launches else None
    for turn, order in enumerate((names, names[::-1])):
        for name in order:
            if any((line["arm"], line["turn"]) == (name, turn) for line in done):
                continue
            if len(done) == most:
                return done
            with serving(arms(draft)[name], "bfloat16") as server:
                passes = asyncio.run(throughput(server.url, turn))
            done.append({"arm": name, "turn": turn, "passes": passes})
            append(path, done[-1])
            sys.stderr.write(f"{len(done)} of {2 * len(names)} launches: {name}\n")
    return done


def compare(path: Path, draft: str, launches: int | None) -> list[dict[str, Any]]:
    """Let each arm answer in float32; plain decoding comes first."""
    done = read(path)
    most = len(done) + launches if launches else None
    for name, config in arms(draft).items():
        if any(line["arm"] == name for line in done):
            continue
        if len(done) == most:
            return done
        with serving(config, "float32") as server:
            done.append({"arm": name, "answers": asyncio.run(answered(server.url))})
        append(path, done[-1])
        sys.stderr.write(f"{len(done)} of {len(arms(draft))} launches: {name}\n")
    return done


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a results file, none where it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, line: dict[str, Any]) -> None:
    """Add one line to a results file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown: a row for each class and arm, with the ratio to plain decoding in each round.

    A round that not every arm has yet is left out.
    """
    names = list(dict.fromkeys(line["arm"] for line in lines))
    made = [line["turn"] for line in lines]
    turns = sorted(turn for turn in set(made) if made.count(turn) == len(names))
    found = {
        (line["arm"], line["turn"], each["class"], each["concurrency"]): each
        for line in lines
        for each in line["passes"]
        if line["turn"] in turns
    }
    heads = " | ".join(f"concurrency {level}" for level in CONCURRENCIES)
    rows = [f"| class | arm | accept length | {heads} |", "|---|---|---|" + "---|" * 3]
    for label in sorted({key[2] for key in found}):
        for name in names:
            accept = accepted(found, name, label)
            cells = [cell(found, name, label, level, turns) for level in CONCURRENCIES]
            rows.append(f"| {label} | {name} | {accept} | {' | '.join(cells)} |")
    return "\n".join(rows)


def accepted(found: dict[tuple[str, int, str, int], dict[str, Any]], name: str, label: str) -> str:
    """Mean accept length over an arm's passes of one class, and the least and largest of them."""
    lengths = [each["accept_length"] for key, each in found.items() if key[::2] == (name, label)]
    if None in lengths:
        return ""
    return f"{statistics.mean(lengths):.2f} ({min(lengths):.2f}-{max(lengths):.2f})"


def cell(
    found: dict[tuple[str, int, str, int], dict[str, Any]],
    name: str,
    label: str,
    level: int,
    turns: Sequence[int],
) -> str:
    """Plain decoding's tokens/s, or an arm's ratio to it; in brackets each turn's."""
    values = [found[name, turn, label, level]["throughput"] for turn in turns]
    if name == "plain":
        each = ", ".join(f"{value:.0f}" for value in values)
        return f"{statistics.mean(values):.0f} tok/s ({each})"
    plain = [found["plain", turn, label, level]["throughput"] for turn in turns]
    ratios = [value / base for value, base in zip(values, plain, strict=True)]
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"{statistics.mean(ratios):.2f}x ({each})"


def verdicts(lines: Sequence[dict[str, Any]]) -> str:
    """One line an arm: how many of its answers are those of plain decoding."""
    plain = next(line["answers"] for line in lines if line["arm"] == "plain")
    return "\n".join(
        f"{line['arm']}: {sum(map(list.__eq__, line['answers'], plain))} of {len(plain)} equal"
        for line in lines
    )


def main() -> None:
    """Measure, then print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("results", type=Path, help="results file, made or gone on with")
    parser.add_argument("--draft", type=Path, default=Path("examples/demo-draft"))
    parser.add_argument("--show", action="store_true", help="measure nothing more")
    parser.add_argument("--launches", type=int, help="make at most so many of them now")
    parser.add_argument("--lossless", action="store_true", help="compare answers in float32")
    options = parser.parse_args()
    draft = str(options.draft.resolve())
    if options.lossless:
        show, make = verdicts, compare
    else:
        show, make = table, measure
    if options.show:
        print(show(read(options.results)))
    else:
        print(show(make(options.results, draft, options.launches)))


if __name__ == "__main__":
    main()
