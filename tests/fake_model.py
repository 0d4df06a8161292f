"""A pretend model and scheduler behind the fake server: deterministic, and as fast as wanted.

Greedy answers depend on the prompt alone. How many drafts are right depends on the method, its
shape and how repetitive the prompt is; n-gram drafting also remembers what it answered. A step's
time grows with the tokens it verifies, so that speculation pays at small batches only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAYLOADS = Path(__file__).parent / "engine" / "payloads"
TEMPLATE: dict[str, Any] = json.loads((PAYLOADS / "server_info_plain.json").read_text())
END_TOKEN = 2
CONTEXT_LENGTH = 8192
_SKILL = {"NGRAM": 0.35, "STANDALONE": 0.6, "EAGLE": 0.65, "EAGLE3": 0.7, "DFLASH": 0.6}
_SKILL |= {"DSPARK": 0.6}
_ALGORITHMS = {*_SKILL, "NEXTN"}


def parse_flags(argv: Sequence[str]) -> dict[str, Any]:
    """Turn a command line into settings by name, with numbers as numbers.

    Raises:
        KeyError: a flag that SGLang does not have.
    """
    settings: dict[str, Any] = {}
    name = ""
    for word in argv:
        if word.startswith("--"):
            flag, given, value = word[2:].partition("=")
            name = flag.replace("-", "_")
            if name not in TEMPLATE:
                raise KeyError(f"--{flag}")
            settings[name] = _value(value) if given else True
        elif settings[name] is True:
            settings[name] = _value(word)
        else:
            before = settings[name]
            settings[name] = [*(before if isinstance(before, list) else [before]), _value(word)]
    return settings


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def resolve(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as SGLang would silently adjust them.

    Raises:
        ValueError: an unknown algorithm.
        RuntimeError: a draft tree that cannot be filled.
    """
    unset = dict.fromkeys(("max_running_requests", "max_total_tokens", "random_seed"))
    settings = {**TEMPLATE, **unset, **asked}
    algorithm = settings["speculative_algorithm"]
    if algorithm is None:
        return settings
    if algorithm not in _ALGORITHMS:
        raise ValueError(f"Unknown speculative algorithm name: {algorithm}")
    if settings["max_running_requests"] is None:
        settings["max_running_requests"] = 48
    steps = settings["speculative_num_steps"] or 3
    topk = settings["speculative_eagle_topk"] or 1
    tokens = settings["speculative_num_draft_tokens"]
    if algorithm == "NGRAM":
        steps, topk, tokens = 0, settings["speculative_ngram_max_bfs_breadth"], tokens or 12
    elif algorithm in ("DFLASH", "DSPARK"):
        tokens = settings[f"speculative_{algorithm.lower()}_block_size"] or 8
        steps, topk = tokens - 1, 1
    elif topk == 1:
        tokens = steps + 1
    elif (tokens or 4) - 1 > topk + (steps - 1) * topk**2:
        raise RuntimeError("selected index k out of range")
    return settings | {
        "speculative_algorithm": "EAGLE" if algorithm == "NEXTN" else algorithm,
        "speculative_num_steps": steps,
        "speculative_eagle_topk": topk,
        "speculative_num_draft_tokens": tokens or 4,
    }


def tokenize(text: str) -> list[int]:
    """One stable id a word."""
    return [10 + zlib.crc32(word.encode()) % 40000 for word in text.split()]


def render(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """A conversation with the marks of a chat template, ready for the answer."""
    ids = [1]
    for message in messages:
        ids += [*tokenize(message["role"]), *tokenize(str(message["content"])), END_TOKEN, 1]
    return [*ids, *tokenize("assistant")]


def answer(
    input_ids: Sequence[int], max_new_tokens: int, *, endless: bool = False
) -> tuple[list[int], str]:
    """The greedy answer to a prompt and why it ends; an endless one goes on past its end."""
    seed = zlib.crc32(str(tuple(input_ids)).encode())
    length = max_new_tokens + 1 if endless else 8 + seed % 25
    ids = [10 + zlib.crc32(f"{seed}:{at}".encode()) % 40000 for at in range(length - 1)]
    ids = [*ids, END_TOKEN]
    return (ids, "stop") if length <= max_new_tokens else (ids[:max_new_tokens], "length")


def change(ids: list[int], by: int) -> list[int]:
    """An answer whose second half is another, token by token; its end mark stays."""
    half = len(ids) // 2
    return [token + by * (at >= half and token != END_TOKEN) for at, token in enumerate(ids)]


def most_likely(
    input_ids: Sequence[int], prompts: Sequence[Sequence[int]], top: int
) -> list[tuple[float, int]]:
    """Log-probabilities of the next tokens after one of the prompts and the begin of its answer.

    The greedy token has a near-tie two above it; all others are far less likely.
    """
    begun = [
        answer(ids, CONTEXT_LENGTH)[0][len(input_ids) - len(ids) :]
        for ids in prompts
        if list(input_ids[: len(ids)]) == list(ids)
    ]
    token = next((rest[0] for rest in begun if rest), END_TOKEN)
    likely = [(-0.7, token), (-0.8, token + 2)]
    return (likely + [(-6.0 - at, token + 3 + at) for at in range(top)])[:top]


@dataclass(eq=False)
class Running:
    """One request that the scheduler has."""

    input_ids: tuple[int, ...]
    ids: list[int]
    reason: str
    cached_tokens: int
    chunks: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    sent: int = 0
    histogram: list[int] = field(default_factory=list)
    created_s: float = field(default_factory=time.perf_counter)


class Scheduler:
    """Continuous batching: every step advances all running requests."""

    def __init__(self, settings: Mapping[str, Any], step_s: float) -> None:
        self.algorithm = settings["speculative_algorithm"]
        self.limit = settings["max_running_requests"] or 2048
        self._step_s = step_s
        self._tokens = settings["speculative_num_draft_tokens"] or 1
        self._topk = settings["speculative_eagle_topk"] or 1
        #: Chance that a draft is right; None leaves it to method and prompt.
        self.skill: float | None = None
        self._steps = settings["speculative_num_steps"] or 0
        self._depth = min(self._tokens - 1, 8) if self.algorithm == "NGRAM" else self._steps
        #: Gives the depth of each step where a plugin steers; None elsewhere.
        self.choose: Callable[[int], int] | None = None
        self.moments = [0.0] * 6
        self.prefilled = 0
        self.waiting: list[Running] = []
        self.running: list[Running] = []
        self._prefixes: set[tuple[int, ...]] = set()
        self._memory: set[tuple[int, ...]] = set()
        self._work = asyncio.Event()

    @property
    def busy(self) -> bool:
        """Whether it has a request."""
        return bool(self.waiting or self.running)

    def submit(
        self, input_ids: Sequence[int], max_new_tokens: int, *, endless: bool = False
    ) -> Running:
        """Queue a request."""
        prompt = tuple(input_ids)
        cached = max((_common(prompt, seen) for seen in self._prefixes), default=0)
        self._prefixes.add(prompt)
        ids, reason = answer(prompt, max_new_tokens, endless=endless)
        request = Running(prompt, ids, reason, min(cached, len(prompt) - 1))
        self.prefilled += len(prompt) - request.cached_tokens
        self.waiting.append(request)
        self._work.set()
        return request

    def flush(self) -> None:
        """Forget every prompt and answer."""
        self._prefixes.clear()
        self._memory.clear()

    def abort_all(self) -> None:
        """Give every request up."""
        for request in self.waiting + self.running:
            request.reason = "abort"
            request.chunks.put_nowait(len(request.ids))
        self.waiting, self.running = [], []

    async def run(self) -> None:
        """Step for ever; a late step is made up for by the next ones."""
        loop = asyncio.get_running_loop()
        clock = loop.time()
        while True:
            if not self.busy:
                self._work.clear()
                await self._work.wait()
                clock = loop.time()
            free = self.limit - len(self.running)
            admitted, self.waiting = self.waiting[:free], self.waiting[free:]
            if self.choose is not None and self.running:
                self._steps = self._depth = self.choose(len(self.running))
                self._tokens = self._depth + 1
            step_s = self._step_time_s(len(self.running), bool(admitted))
            clock += step_s
            await asyncio.sleep(max(0.0, clock - loop.time()))
            if self.running:
                self._count(len(self.running), step_s)
            for request in list(self.running):
                self._advance(request, self._verify(request))
            self.running += admitted
            for request in admitted:
                self._advance(request, 1)

    def _step_time_s(self, batch: int, prefill: bool) -> float:
        drafting = 0.0 if self.algorithm in (None, "NGRAM") else 0.12 * self._steps
        verify = 0.04 * batch * self._tokens
        return self._step_s * ((1 + verify + drafting if batch else 0.0) + 0.5 * prefill)

    def _count(self, batch: int, step_s: float) -> None:
        us = step_s * 1e6
        news = (1.0, batch, us, batch**2, batch * us, 0.0)
        self.moments = [old + new for old, new in zip(self.moments, news, strict=True)]

    def _verify(self, request: Running) -> int:
        if self.algorithm is None:
            self.moments[5] += 1
            return 1
        missing = self._depth + 1 - len(request.histogram)
        request.histogram += [0] * missing
        chance = self._chance(request.input_ids)
        seed = zlib.crc32(str(request.input_ids).encode())
        correct = 0
        while correct < self._depth:
            draw = zlib.crc32(f"{seed}:{request.sent}:{correct}".encode()) / 2**32
            if draw >= chance:
                break
            correct += 1
        request.histogram[correct] += 1
        self.moments[5] += 1 + correct
        return 1 + correct

    def _chance(self, prompt: tuple[int, ...]) -> float:
        if self.skill is not None:
            return self.skill
        if self.algorithm == "NGRAM" and prompt in self._memory:
            return 0.97
        repeated = 1 - len(set(prompt)) / len(prompt)
        skill = _SKILL[self.algorithm] + 0.4 * repeated + 0.04 * math.log2(self._topk)
        return min(skill, 0.95)

    def _advance(self, request: Running, tokens: int) -> None:
        if request.reason == "abort":
            return
        request.sent = min(request.sent + tokens, len(request.ids))
        if request.sent == len(request.ids):
            self.running.remove(request)
            self._memory.add(request.input_ids)
        request.chunks.put_nowait(request.sent)


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
