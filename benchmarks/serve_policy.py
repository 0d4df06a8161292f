"""What the policy inside the server is worth, on the real engine on the CPU with the demo model.

One workload in three phases, prompts that are easy to draft for, hard ones, easy ones again, goes
to three servers in turn: plain decoding, static speculation, and ``autospec serve``'s, whose step
times come from the first two. Once with NGRAM and once with STANDALONE and the demo's drafter.
Rounds run the three in turned order. Each arm is a launch of its own, since two servers at once
would share the cores.

Exit code 1 if a figure misses what was promised.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from autospec import demo
from autospec.config import PLAIN, SpecConfig
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.engine import cpu
from autospec.engine.args import Deployment, server_args
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.evidence import (
    Environment,
    Interval,
    Point,
    Provenance,
    StepTime,
    Target,
    WorkloadSummary,
)
from autospec.measurement import Request
from autospec.profile import Choice, Profile, Verdict, save_profile
from autospec.tuning.steer import forget_status

#: Least throughput over the better of the other two in a phase, and the most steps to react.
LEAST_OF_BETTER: Final = 0.97
MOST_STEPS: Final = {"collapse": 50, "return": 200}
MOST_OVERHEAD: Final = 0.01
ARMS: Final = ("plain", "static", "autospec")
PHASES: Final = ("easy", "hard", "easy again")
#: The classes of demo prompts that are easy and hard to draft for.
CLASSES: Final = {"NGRAM": ("edit", "chat"), "STANDALONE": ("mail", "chat")}
CALIBRATION: Final = (1, 2, 4, 8)


def config_of(method: str) -> SpecConfig:
    """What the static arm runs."""
    if method == "NGRAM":
        return SpecConfig("NGRAM", num_draft_tokens=8, options=(("ngram_max_bfs_breadth", 1),))
    draft = demo.draft_path()
    if draft is None:
        raise SystemExit("the demo's drafter is not here: run this from a checkout")
    return SpecConfig("STANDALONE", 4, 1, 5, str(draft))


@contextlib.contextmanager
def serving(
    config: SpecConfig, variables: Mapping[str, str], log: Path, dtype: str
) -> Iterator[ServerProcess]:
    """One real server."""
    deployment = Deployment(
        model=str(demo.model_path()),
        device="cpu",
        dtype=dtype,
        max_running_requests=16,
        mem_fraction_static=0.3,
        max_total_tokens=16384,
    )
    environment = {**cpu.environment(), **variables}
    arguments = server_args(deployment, config)
    with ServerProcess(arguments, environment=environment, log_path=log) as server:
        try:
            yield server
        finally:
            forget_status(server.port)


async def requests_of(client: EngineClient, label: str, tokens: int) -> list[Request]:
    """The demo prompts of one class."""
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line) for line in lines]
    return [
        Request(index, await client.tokenize(messages=prompt["messages"]), tokens, label)
        for index, prompt in enumerate(prompts)
        if prompt["class"] == label
    ]


async def closed_loop(client: EngineClient, requests: Sequence[Request], width: int) -> float:
    """Output tokens/s of requests, so many in flight."""
    waiting, tokens = list(reversed(requests)), 0

    async def worker() -> None:
        nonlocal tokens
        while waiting:
            record = await client.generate(waiting.pop())
            if record.error is not None:
                raise SystemExit(f"a request failed: {record.error}")
            tokens += record.completion_tokens

    began = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(width)))
    return tokens / (time.perf_counter() - began)


async def calibrate(url: str, config: SpecConfig, label: str) -> tuple[StepTime, ...]:
    """Step times by batch size, by the server's own count."""
    rows: list[StepTime] = []
    async with EngineClient(url) as client:
        requests = await requests_of(client, label, 48)
        for width in CALIBRATION:
            await client.flush()
            # The server publishes its counts every 15 steps and when it falls idle.
            await asyncio.sleep(0.5)
            before = await client.decode_moments()
            await closed_loop(client, requests[: 2 * width], width)
            await asyncio.sleep(0.5)
            after = await client.decode_moments()
            if before is None or after is None:
                raise SystemExit("the server counts no decode steps")
            steps = after.num_steps - before.num_steps
            batch = (after.sum_batch_size - before.sum_batch_size) / steps
            ms = (after.sum_step_us - before.sum_step_us) / steps / 1000
            rows.append(StepTime(config, width, batch, ms, int(steps)))
    return tuple(rows)


async def phases(
    url: str, port: int, method: str, options: argparse.Namespace
) -> tuple[list[float], list[PluginStatus | None]]:
    """Tokens/s of each phase, and the plugin's word before the first and after each."""
    easy, hard = CLASSES[method]
    async with EngineClient(url) as client:
        first = await requests_of(client, easy, options.tokens)
        other = await requests_of(client, hard, options.tokens)
        half = len(first) // 2
        rates, words = [], [_word(port)]
        await client.flush()
        for part in (first[:half], other, first[half:]):
            wanted = (part * (1 + options.requests // len(part)))[: options.requests]
            rates.append(await closed_loop(client, wanted, options.concurrency))
            await asyncio.sleep(1.5)
            words.append(_word(port))
    return rates, words


def _word(port: int) -> PluginStatus | None:
    path = status_path(port)
    return read_status(path) if path.is_file() else None


def profile_of(config: SpecConfig, rows: Sequence[StepTime], dtype: str) -> Profile:
    """The smallest profile that holds these step times."""
    one = Interval(1.0, 1.0, 1.0)
    depth = config.num_steps or (config.num_draft_tokens or 1) - 1
    arguments = {"model_path": "demo", "speculative_algorithm": config.algorithm}
    return Profile(
        target=Target("demo", "demo", "LlamaForCausalLM"),
        environment=Environment("cpu", "this one", 1, "0.5.23", dtype, 1),
        workload=WorkloadSummary("demo", "demo", {}, {}, CALIBRATION, 0.0),
        verdict=Verdict("faster", "for the benchmark", "tune", config, one),
        choice=Choice(config, {**arguments}, {}),
        baseline=(Point(PLAIN, "tune", 1, one, 1),),
        points=(),
        schedule=dict.fromkeys(CALIBRATION, depth),
        acceptance=(),
        failed=(),
        provenance=Provenance("benchmarks/serve_policy.py", "now", 0, "none", 0, 0.0, "done"),
        step_times=tuple(rows),
    )


def reaction(before: PluginStatus | None, after: PluginStatus | None, *, off: bool) -> int | None:
    """Steps from the beginning of a phase to the first settled change off, or on; None if none."""
    if before is None or after is None:
        return None
    for event in after.decisions:
        settled = event.want == "settle" and (event.depth == 0) is off
        if settled and event.step >= before.steps:
            return event.step - before.steps
    return None


def one_method(method: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All rounds with one way of drafting."""
    config, easy = config_of(method), CLASSES[method][0]
    rates: dict[str, list[list[float]]] = {arm: [] for arm in ARMS}
    rows: list[StepTime] = []
    found: dict[str, Any] = {"collapse": [], "return": [], "overhead": []}
    for round_number in range(options.rounds):
        for arm in ARMS if round_number % 2 == 0 else reversed(ARMS):
            variables = {}
            if arm == "autospec":
                save_profile(folder / f"{method}.yaml", profile_of(config, rows, options.dtype))
                variables = {"AUTOSPEC_PROFILE": str(folder / f"{method}.yaml")}
            runs = PLAIN if arm == "plain" else config
            log = folder / f"{method}-{arm}.log"
            with serving(runs, variables, log, options.dtype) as server:
                if round_number == 0 and arm != "autospec":
                    rows += asyncio.run(calibrate(server.url, runs, easy))
                made, words = asyncio.run(phases(server.url, server.port, method, options))
            rates[arm].append(made)
            say(f"  {method:<10} round {round_number + 1} {arm:<8} {_shown(made)}")
            if arm == "autospec":
                _note(found, words)
    return {
        "rates": rates,
        "step_times": [(str(r.config), r.batch_size, r.step_time_ms) for r in rows],
        **found,
    }


def _note(found: dict[str, Any], words: Sequence[PluginStatus | None]) -> None:
    found["collapse"].append(reaction(words[1], words[2], off=True))
    found["return"].append(reaction(words[2], words[3], off=False))
    last = words[-1]
    if last is None or not last.active:
        raise SystemExit("the policy was not at work")
    found["overhead"].append(last.decision_us)
    say(f"             {last.steps} steps, {last.counters}")


def verdict(method: str, result: Mapping[str, Any]) -> bool:
    """Say how a method did, and whether it is as promised."""
    middle = {
        arm: [statistics.median(column) for column in zip(*made, strict=True)]
        for arm, made in result["rates"].items()
    }
    good: bool = True
    for place, name in enumerate(PHASES):
        ours = middle["autospec"][place]
        better = max(middle["plain"][place], middle["static"][place])
        good &= ours >= LEAST_OF_BETTER * better
        say(
            f"{method:<10} {name:<11} plain {middle['plain'][place]:6.1f}  static "
            f"{middle['static'][place]:6.1f}  autospec {ours:6.1f}  {ours / better:.3f} of better"
        )
    # Equal numbers of requests a phase: the time over all of them decides.
    whole = {arm: 1 / sum(1 / rate for rate in middle[arm]) for arm in ARMS}
    good &= whole["autospec"] >= max(whole["plain"], whole["static"])
    steps = {"collapse": result["collapse"], "return": result["return"]}
    for name, most in MOST_STEPS.items():
        good &= all(count is not None and count <= most for count in steps[name])
    plain_ms = min(ms for text, _, ms in result["step_times"] if text == "PLAIN")
    share = max(us or 0.0 for us in result["overhead"]) / 1000 / plain_ms
    good &= share <= MOST_OVERHEAD
    say(
        f"{method:<10} whole run: {whole['autospec'] / whole['plain']:.3f}x plain, "
        f"{whole['autospec'] / whole['static']:.3f}x static; steps to plain {steps['collapse']}, "
        f"back {steps['return']}; a decision takes {share:.2%} of a plain step"
    )
    return bool(good)


def _shown(rates: Sequence[float]) -> str:
    return "  ".join(f"{rate:6.1f}" for rate in rates) + " tokens/s"


def say(line: str) -> None:
    """Print at once: the run is long."""
    print(line, flush=True)


def main() -> int:
    """Run all rounds of all methods."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--methods", nargs="+", default=list(CLASSES), choices=list(CLASSES))
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--requests", type=int, default=60, help="a phase")
    parser.add_argument("--tokens", type=int, default=96, help="longest answer")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--json", type=Path, help="file for all figures")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serve-policy-") as folder:
        results = {method: one_method(method, options, Path(folder)) for method in options.methods}
    good = [verdict(method, result) for method, result in results.items()]
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
