"""How far measuring can be trusted, on the real engine on the CPU with the demo model.

* A/A: comparisons of a plain server with itself, passes interleaved (A B B A ...), stopped by the
  rule that compares configurations; how many end in a verdict that is false.
* Throughput: passes in turn with ``python -m sglang.bench_serving`` on the same server, with the
  same prompts, order and answer lengths; both figures over the whole run, its start and end too.
  Lengths differ between prompts: answers of one length end together, and how many of the next
  requests then share a prefill is a matter of milliseconds.
* Clocks: the same requests' throughput by the client's clock and by the server's.
* Accept length: of an NGRAM server's passes, against its own ``avg_spec_accept_length``.

Exit code 1 if one of them misses what was promised.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from autospec import demo, metrics
from autospec.config import PLAIN, SpecConfig
from autospec.engine import cpu, wire
from autospec.engine.args import Deployment, server_args
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.measure.checks import pass_warnings
from autospec.measure.harness import Harness, PassPlan
from autospec.measure.prompt import Prompt
from autospec.measure.sequential import Look, StoppingRule
from autospec.measure.split import Parts, split
from autospec.measure.workload import Workload, read_workload
from autospec.measurement import Run

#: Most false verdicts, and most relative differences, that were promised.
MOST_FALSE: Final = 1
MOST_DIFFERENCE: Final = {"throughput": 0.02, "clocks": 0.02, "accept length": 0.01}
#: Longest answers of successive prompts, as shares of their mean.
LENGTHS: Final = (0.5, 1.25, 0.75, 1.5, 1.0)
#: Seed by which SGLang's tool shuffles its prompts.
SHUFFLE_SEED: Final = 42
NGRAM: Final = SpecConfig(
    "NGRAM",
    num_draft_tokens=8,
    options=(("ngram_match_type", "BFS"), ("ngram_max_bfs_breadth", 4)),
)


@contextlib.contextmanager
def serving(options: argparse.Namespace, config: SpecConfig) -> Iterator[str]:
    """One real server; gives its address."""
    deployment = Deployment(
        model=str(options.model),
        device="cpu",
        max_running_requests=16,
        mem_fraction_static=0.3,
        max_total_tokens=16384,
    )
    # Otherwise the server's own accept length moves only every 40 steps.
    arguments = server_args(deployment, config) | {"decode_log_interval": 1}
    with tempfile.TemporaryDirectory(prefix="measuring-") as folder:
        log = Path(folder) / "server.log"
        with ServerProcess(arguments, environment=cpu.environment(), log_path=log) as server:
            yield server.url


def chat_text(prompt: Prompt) -> str:
    """The conversation as the demo model's template writes it, for a tool that sends texts."""
    turns = prompt.messages or ()
    written = "".join(f"<|im_start|>{turn.role}\n{turn.content}<|im_end|>\n" for turn in turns)
    return written + "<|im_start|>assistant\n"


def workload(tokens: int) -> Workload:
    """The demo prompts as texts, with answers of at most about so many tokens."""
    source = read_workload(demo.prompts_path(), default_max_new_tokens=tokens)
    prompts = tuple(
        replace(
            prompt,
            text=chat_text(prompt),
            messages=None,
            max_new_tokens=max(1, round(tokens * LENGTHS[place % len(LENGTHS)])),
        )
        for place, prompt in enumerate(source.prompts)
    )
    return replace(source, prompts=prompts)


@contextlib.asynccontextmanager
async def harness_at(url: str, parts: Parts, plan: PassPlan) -> AsyncIterator[Harness]:
    """A harness on a running server, its prompts rendered."""
    async with EngineClient(url) as client:
        harness = Harness(client, parts, plan=plan)
        await harness.render()
        yield harness


async def compare_with_itself(harness: Harness, options: argparse.Namespace, number: int) -> Look:
    """One A/A comparison, until its rule ends it."""
    rule = StoppingRule(max_pairs=options.max_pairs)
    arms: dict[str, list[float]] = {"a": [], "b": []}
    while True:
        pair = len(arms["a"])
        for name in ("ab", "ba")[pair % 2]:
            # Each comparison sends other prompts, both arms of a pair the same.
            repeat = number * options.max_pairs + pair
            run = await harness.run_pass("tune", options.concurrency, repeat)
            arms[name].append(run.output_throughput)
        look = rule.look(arms["a"], arms["b"])
        if look.stop:
            return look


async def a_a(url: str, parts: Parts, options: argparse.Namespace) -> list[dict[str, Any]]:
    """All A/A comparisons, one after the other."""
    plan = PassPlan(
        (options.concurrency,), requests_per_pass=options.aa_requests, warmup_new_tokens=8
    )
    found: list[dict[str, Any]] = []
    async with harness_at(url, parts, plan) as harness:
        for number in range(options.comparisons):
            look = await compare_with_itself(harness, options, number)
            ratio = look.ratio
            found.append(
                {
                    "ratio": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "pairs": ratio.n,
                    "decision": look.decision,
                }
            )
            say(
                f"  A/A {number + 1:>2}: {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}),"
                f" {ratio.n} pairs: {look.decision}"
            )
    return found


def whole(run: Run) -> float:
    """Output tokens/s over the whole pass, its start and end too."""
    return sum(record.completion_tokens for record in run.records) / run.duration_s


def clock_ratio(run: Run) -> float:
    """Throughput of each request alone, by the client's clock over the server's."""
    server_s = sum(record.server_latency_s or 0.0 for record in run.records)
    return server_s / sum(record.end_s - record.start_s for record in run.records)


def bench_serving(url: str, prompts: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One run of SGLang's own tool."""
    with tempfile.TemporaryDirectory(prefix="measuring-") as folder:
        result = Path(folder) / "result.jsonl"
        command = [
            *(sys.executable, "-m", "sglang.bench_serving", "--backend", "sglang"),
            *("--base-url", url, "--model", str(options.model), "--tokenizer", str(options.model)),
            *("--dataset-name", "custom", "--dataset-path", str(prompts)),
            *("--num-prompts", str(options.requests)),
            *("--max-concurrency", str(options.concurrency)),
            *("--disable-ignore-eos", "--flush-cache", "--disable-tqdm", "--output-details"),
            *("--seed", str(SHUFFLE_SEED), "--output-file", str(result)),
        ]
        ended = subprocess.run(  # noqa: S603 - SGLang's own tool, by this interpreter
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False
        )
        if ended.returncode:
            raise SystemExit(ended.stdout.decode()[-2000:])
        found: dict[str, Any] = json.loads(result.read_text().splitlines()[-1])
    return found


def before_shuffling(lines: Sequence[str]) -> list[str]:
    """Lines in an order that the tool's shuffle turns into the one given."""
    order = list(range(len(lines)))
    random.Random(SHUFFLE_SEED).shuffle(order)  # noqa: S311 - the tool's own shuffle, foreseen
    placed = dict(zip(order, lines, strict=True))
    return [placed[place] for place in range(len(lines))]


def require_same_order(run: Run, result: Mapping[str, Any]) -> None:
    """Refuse a round in which the tool sent the prompts in another order."""
    ours = [record.prompt_tokens for record in sorted(run.records, key=lambda r: r.start_s)]
    if sorted(ours) != sorted(result["input_lens"]):
        raise SystemExit("bench_serving sent other prompts")
    moved = sum(a != b for a, b in zip(ours, result["input_lens"], strict=True))
    # Requests sent in the same instant may be listed in either order.
    if moved > len(ours) / 4:
        raise SystemExit(f"bench_serving sent {moved} of {len(ours)} prompts at another place")


async def against_bench_serving(
    url: str, parts: Parts, options: argparse.Namespace
) -> dict[str, list[Any]]:
    """Both tools in turn, ours first in every other round."""
    plan = PassPlan((options.concurrency,), requests_per_pass=options.requests)
    found: dict[str, list[Any]] = {n: [] for n in ("ours", "theirs", "clocks", "warnings")}
    tokens: dict[str, list[int]] = {"ours": [], "theirs": []}
    with tempfile.TemporaryDirectory(prefix="measuring-") as folder:
        path = Path(folder) / "prompts.jsonl"
        # The tool asks for as many tokens as the answer in its file has; each of these is one.
        lines = [
            json.dumps({"conversations": [{"value": p.text}, {"value": " ".join("a" * limit)}]})
            for p in parts.tune.slice(0, options.requests)
            if (limit := p.max_new_tokens)
        ]
        path.write_text("\n".join(before_shuffling(lines)) + "\n")
        async with harness_at(url, parts, plan) as harness:
            for number in range(options.rounds):
                for name in (("ours", "theirs"), ("theirs", "ours"))[number % 2]:
                    if name == "ours":
                        run = await harness.run_pass("tune", options.concurrency, 0)
                        found[name].append(whole(run))
                        found["clocks"].append(clock_ratio(run))
                        found["warnings"] += run.warnings
                        tokens[name].append(sum(r.completion_tokens for r in run.records))
                    else:
                        result = await asyncio.to_thread(bench_serving, url, path, options)
                        found[name].append(result["output_throughput"])
                        tokens[name].append(result["total_output_tokens"])
                require_same_order(run, result)
                say(
                    f"  round {number + 1}: ours {found['ours'][-1]:.2f} tokens/s"
                    f" ({tokens['ours'][-1]} tokens), bench_serving {found['theirs'][-1]:.2f}"
                    f" ({tokens['theirs'][-1]} tokens)"
                )
    return found


def own_accept_length(url: str) -> float:
    """The server's count since it was last flushed."""
    with urllib.request.urlopen(url + wire.SERVER_INFO, timeout=60) as answer:  # noqa: S310 - our own server
        return float(json.loads(answer.read())["internal_states"][0]["avg_spec_accept_length"])


async def accept_lengths(url: str, parts: Parts, options: argparse.Namespace) -> dict[str, Any]:
    """(ours, the server's own) of passes of a speculative server, two with the same prompts."""
    plan = PassPlan((options.concurrency,), requests_per_pass=options.requests)
    found: list[tuple[float, float]] = []
    runs: list[Run] = []
    async with harness_at(url, parts, plan) as harness:
        for repeat in (0, 0, 1):
            runs.append(await harness.run_pass("tune", options.concurrency, repeat))
            ours = metrics.accept_length(runs[-1].records) or 0.0
            found.append((ours, await asyncio.to_thread(own_accept_length, url)))
            say(f"  accept length: ours {ours:.4f}, the server's {found[-1][1]:.4f}")
    warnings = [line for run in runs for line in run.warnings]
    return {"accept_lengths": found, "warnings": [*warnings, *pass_warnings(runs)]}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Everything, as it is written with ``--json``."""
    prompts = workload(options.tokens)
    parts = split(prompts, 0, max_concurrency=options.concurrency)
    short = tuple(replace(p, max_new_tokens=options.aa_tokens) for p in prompts.prompts)
    short_parts = split(replace(prompts, prompts=short), 0, max_concurrency=options.concurrency)
    with serving(options, PLAIN) as url:
        found: dict[str, Any] = asyncio.run(against_bench_serving(url, parts, options))
        found["a_a"] = asyncio.run(a_a(url, short_parts, options))
    with serving(options, NGRAM) as url:
        drafted = asyncio.run(accept_lengths(url, parts, options))
    found["accept_lengths"] = drafted["accept_lengths"]
    found["warnings"] = list(dict.fromkeys(found["warnings"] + drafted["warnings"]))
    return found


def conclude(found: Mapping[str, Any]) -> dict[str, tuple[str, float, float]]:
    """(what it is, figure, the most that was promised) by name."""
    decisions = [comparison["decision"] for comparison in found["a_a"]]
    false = sum(decision in ("faster", "slower") for decision in decisions)
    figures = {
        "throughput": statistics.median(
            ours / theirs for ours, theirs in zip(found["ours"], found["theirs"], strict=True)
        )
        - 1,
        "clocks": statistics.median(found["clocks"]) - 1,
        "accept length": max(
            (ours / theirs - 1 for ours, theirs in found["accept_lengths"]), key=abs
        ),
    }
    titles = {
        "throughput": "ours over bench_serving, median",
        "clocks": "client's clock over server's, median",
        "accept length": "ours over the server's own, worst",
    }
    rows: dict[str, tuple[str, float, float]] = {
        name: (titles[name], figure, MOST_DIFFERENCE[name]) for name, figure in figures.items()
    }
    return {"A/A": (f"false verdicts of {len(decisions)}", float(false), MOST_FALSE), **rows}


def show(rows: Mapping[str, tuple[str, float, float]]) -> None:
    """Print each figure beside what was promised."""
    say(f"\n{'':<14}{'':<38}{'found':>9}{'allowed':>9}")
    for name, (title, figure, most) in rows.items():
        texts = (f"{figure:.0f}", f"{most:.0f}") if name == "A/A" else _percent(figure, most)
        missed = "" if abs(figure) <= most else "  MISSED"
        say(f"{name:<14}{title:<38}{texts[0]:>9}{texts[1]:>9}{missed}")


def _percent(figure: float, most: float) -> tuple[str, str]:
    return f"{figure:+.2%}", f"{most:.0%}"


def say(text: str) -> None:
    """Print at once: a run takes minutes."""
    print(text, flush=True)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, help="converted model; the demo model by default")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--comparisons", type=int, default=10, help="A/A comparisons")
    parser.add_argument("--max-pairs", type=int, default=8, help="most pairs of one comparison")
    parser.add_argument("--aa-requests", type=int, default=12, help="requests of an A/A pass")
    parser.add_argument("--aa-tokens", type=int, default=24, help="longest answer of an A/A pass")
    parser.add_argument("--rounds", type=int, default=5, help="rounds with bench_serving")
    parser.add_argument("--requests", type=int, default=32, help="requests of other passes")
    parser.add_argument(
        "--tokens", type=int, default=64, help="longest answer of other passes, on average"
    )
    parser.add_argument("--json", type=Path, help="also write all values to this file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 if something promised was missed."""
    options = parse(arguments)
    options.model = options.model or demo.model_path(say)
    found = measure(options)
    rows = conclude(found)
    show(rows)
    for line in found["warnings"]:
        say(f"warning: {line}")
    if options.json:
        figures = {name: figure for name, (_, figure, _) in rows.items()}
        options.json.write_text(json.dumps({**found, "figures": figures}, indent=1) + "\n")
    return int(any(abs(figure) > most for _, figure, most in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
