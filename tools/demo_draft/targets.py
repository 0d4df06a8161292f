"""The target's greedy answers to the training prompts, in shards that a second run keeps."""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from autospec.config import PLAIN
from autospec.engine import cpu
from autospec.engine.args import Deployment, server_args
from autospec.engine.client import EngineClient
from autospec.engine.server import ServerProcess
from autospec.measurement import Request
from tools.demo_draft.files import write_atomically
from tools.demo_draft.prompts import Prompt

__all__ = ["answer", "answer_all", "answers", "missing_shards"]

SHARD_PROMPTS: Final = 128
_IN_FLIGHT: Final = 64

#: A file to be and the prompts whose answers it will hold.
Shard = tuple[Path, Sequence[Prompt]]


def missing_shards(work: Path, sets: Mapping[str, Sequence[Prompt]]) -> list[Shard]:
    """The files of 128 prompts each that are not there yet, with their prompts."""
    return [
        (path, prompts[number * SHARD_PROMPTS : (number + 1) * SHARD_PROMPTS])
        for name, prompts in sets.items()
        for number, path in enumerate(_paths(work, name, prompts))
        if not path.exists()
    ]


def answer_all(work: Path, model: Path, sets: Mapping[str, Sequence[Prompt]]) -> None:
    """Let the target answer every prompt that has no answer yet, greedily, in bfloat16.

    Raises:
        EngineError: the server cannot be started or does not answer.
    """
    missing = missing_shards(work, sets)
    if not missing:
        return
    deployment = Deployment(
        model=str(model),
        device="cpu",
        dtype="bfloat16",
        max_running_requests=_IN_FLIGHT,
        mem_fraction_static=0.2,
        context_length=1024,
    )
    with ServerProcess(
        server_args(deployment, PLAIN),
        environment=cpu.environment(),
        log_path=work / "server.log",
    ) as server:
        asyncio.run(answer(server.url, missing))


def answers(work: Path, name: str, prompts: Sequence[Prompt]) -> Iterator[dict[str, list[int]]]:
    """Prompt ids and answer ids of each prompt of a set, in order."""
    for path in _paths(work, name, prompts):
        yield from json.loads(path.read_text(encoding="utf-8"))


async def answer(url: str, missing: Sequence[Shard]) -> None:
    """Fill the missing files from a running server, each once all its answers are there."""
    began, tokens, slots = time.monotonic(), 0, asyncio.Semaphore(_IN_FLIGHT)
    async with EngineClient(url) as client:

        async def one(prompt: Prompt) -> dict[str, list[int]]:
            async with slots:
                messages = [{"role": "user", "content": prompt.text}]
                ids = await client.tokenize(messages=messages)
                output = await client.answer(Request(0, ids, prompt.max_new_tokens))
            return {"prompt": list(ids), "answer": list(output)}

        async def shard(path: Path, prompts: Sequence[Prompt]) -> None:
            nonlocal tokens
            made = await asyncio.gather(*map(one, prompts))
            write_atomically(path, json.dumps(made).encode())
            tokens += sum(len(answer["answer"]) for answer in made)
            rate = tokens / (time.monotonic() - began)
            sys.stderr.write(f"{path.name}: {tokens} tokens so far, {rate:.0f} a second\n")

        async with asyncio.TaskGroup() as group:
            for path, prompts in missing:
                group.create_task(shard(path, prompts))


def _paths(work: Path, name: str, prompts: Sequence[Prompt]) -> list[Path]:
    """One file for 128 prompts, named after them too: others would get another file."""
    paths = []
    for number, begin in enumerate(range(0, len(prompts), SHARD_PROMPTS)):
        texts = [(p.text, p.max_new_tokens) for p in prompts[begin : begin + SHARD_PROMPTS]]
        digest = hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]
        paths.append(work / "answers" / f"{name}-{number:03d}-{digest}.json")
    return paths
