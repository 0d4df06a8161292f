"""The lossless check on the real engine in bfloat16, where rounding flips near-ties."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from autospec import demo
from autospec.config import PLAIN, SpecConfig
from autospec.engine import cpu
from autospec.engine.args import server_args
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.fidelity import Lossless
from autospec.measure.lossless import Answers, check, collect
from autospec.measurement import Request
from tests.real_engine import deployed

pytestmark = pytest.mark.engine

T = TypeVar("T")
NUM_PROMPTS = 10
MAX_NEW_TOKENS = 40
CONCURRENCY = 8
NGRAM = SpecConfig(
    "NGRAM",
    num_draft_tokens=8,
    options=(("ngram_match_type", "BFS"), ("ngram_max_bfs_breadth", 4)),
)


def asked(
    model: Path,
    log: Path,
    story: Callable[[EngineClient, list[Request]], Awaitable[T]],
    config: SpecConfig = PLAIN,
    **changes: Any,
) -> T:
    """What comes of a story on one real server in bfloat16 with some settings changed."""
    arguments = {**server_args(deployed(model, "bfloat16"), config), **changes}
    lines = demo.prompts_path().read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line) for line in lines[:: len(lines) // NUM_PROMPTS]][:NUM_PROMPTS]

    async def told(url: str) -> T:
        async with EngineClient(url) as client:
            requests = [
                Request(at, await client.tokenize(messages=prompt["messages"]), MAX_NEW_TOKENS)
                for at, prompt in enumerate(prompts)
            ]
            return await story(client, requests)

    with ServerProcess(arguments, environment=cpu.environment(), log_path=log) as server:
        return asyncio.run(told(server.url))


async def answers(client: EngineClient, requests: list[Request]) -> Answers:
    """Greedy answers as a confirmation asks for them."""
    return await collect(client, requests, CONCURRENCY)


def test_drafting_is_like_plain_and_another_model_differs(demo_model: Path, tmp_path: Path) -> None:
    """Rounding's near-ties pass, on both sides; a model with other norms is found out."""
    drafted = asked(demo_model, tmp_path / "ngram.log", answers, NGRAM)
    # The model's own is 1e-5; some answers stay the same even so.
    other = json.dumps({"rms_norm_eps": 0.02})
    tampered = asked(demo_model, tmp_path / "other.log", answers, json_model_override_args=other)

    async def judged(
        client: EngineClient, requests: list[Request]
    ) -> tuple[Lossless, Lossless, list[bool]]:
        plain = await answers(client, requests)
        tops = [await client.next_logprobs(request.input_ids, top=5) for request in requests]
        assert all(len(top) == 5 and top[0][1] <= 0 for top in tops)
        first = [plain[at][0] == top[0][0] for at, top in enumerate(tops)]
        return (
            await check(client, requests, plain, drafted, CONCURRENCY),
            await check(client, requests, plain, tampered, CONCURRENCY),
            first,
        )

    faithful, lossy, first = asked(demo_model, tmp_path / "plain.log", judged)

    assert sum(first) >= NUM_PROMPTS - 2
    assert faithful.decision in ("identical", "like plain")
    assert faithful.control.wide == lossy.control.wide == 0
    assert lossy.decision == "differs"
    assert lossy.candidate.widest is not None
    assert lossy.candidate.widest > lossy.near_tie_nats
