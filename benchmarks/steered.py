"""Real servers of the demo model, and what to send them: shared by the benchmarks of the plugin."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from autospec import demo
from autospec.config import PLAIN, SpecConfig
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
from autospec.profile import Choice, Profile, Verdict
from autospec.tuning.steer import forget_status

#: The classes of demo prompts that are easy and hard to draft for.
CLASSES: Final = {"NGRAM": ("edit", "chat"), "STANDALONE": ("mail", "chat")}
PHASES: Final = ("easy", "hard", "easy again")
#: Easy prompts are so few and come again and again: NGRAM drafts what it has seen.
EASY_PROMPTS: Final = 12
#: What is asked about a topic, in rotation: what is said of one hardly helps to draft the others.
QUESTIONS: Final = (
    "What is there to know about {}?",
    "Write a few lines about {}.",
    "Why would anybody care for {}?",
    "Tell me a short tale of {}.",
)
TOPICS: Final = Path(__file__).parent / "data" / "topics.txt"
CALIBRATION: Final = (1, 2, 4, 8)
SHORTER: Final = (1, 2)
#: Time that the plugin takes at most to write its status, in s.
SETTLE_S: Final = 1.5


def say(line: str) -> None:
    """Print at once: the run is long."""
    print(line, flush=True)


def config_of(method: str) -> SpecConfig:
    """What the static arm runs."""
    if method == "NGRAM":
        return SpecConfig("NGRAM", num_draft_tokens=8, options=(("ngram_max_bfs_breadth", 1),))
    draft = demo.draft_path()
    if draft is None:
        raise SystemExit("the demo's drafter is not here: run this from a checkout")
    return SpecConfig("STANDALONE", 4, 1, 5, str(draft))


def shorter_than(config: SpecConfig) -> list[SpecConfig]:
    """Shorter chains that a search would have timed as well; none of what has no depths."""
    return [
        replace(config, num_steps=steps, num_draft_tokens=steps + 1)
        for steps in SHORTER
        if config.num_steps is not None
    ]


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
    prompts = [prompt for prompt in map(json.loads, lines) if prompt["class"] == label]
    return [
        Request(index, await client.tokenize(messages=prompt["messages"]), tokens, label)
        for index, prompt in enumerate(prompts)
    ]


async def easy_requests(client: EngineClient, method: str, tokens: int) -> list[Request]:
    """A few prompts that are easy to draft for once they were seen; meant to come again."""
    return (await requests_of(client, CLASSES[method][0], tokens))[:EASY_PROMPTS]


async def hard_requests(client: EngineClient, method: str, tokens: int) -> list[Request]:
    """Many prompts that are hard to draft for as long as each comes once."""
    label = CLASSES[method][1]
    found = await requests_of(client, label, tokens)
    topics = TOPICS.read_text(encoding="utf-8").splitlines()
    for question, topic in zip(itertools.cycle(QUESTIONS), topics, strict=False):
        messages = [{"role": "user", "content": question.format(topic)}]
        ids = await client.tokenize(messages=messages)
        found.append(Request(len(found), ids, tokens, label))
    return found


async def closed_loop(
    client: EngineClient,
    requests: Sequence[Request],
    width: int,
    look: Callable[[], None] | None = None,
) -> int:
    """Output tokens of requests, so many in flight; after each there is a look at something."""
    waiting, tokens = list(reversed(requests)), 0

    async def worker() -> None:
        nonlocal tokens
        while waiting:
            record = await client.generate(waiting.pop())
            if record.error is not None:
                raise SystemExit(f"a request failed: {record.error}")
            tokens += record.completion_tokens
            if look is not None:
                look()

    await asyncio.gather(*(worker() for _ in range(width)))
    return tokens


async def calibrate(
    url: str, config: SpecConfig, label: str, widths: Sequence[int] = CALIBRATION
) -> tuple[StepTime, ...]:
    """Step times by batch size, by the server's own count."""
    rows: list[StepTime] = []
    async with EngineClient(url) as client:
        requests = await requests_of(client, label, 48)
        for width in widths:
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
