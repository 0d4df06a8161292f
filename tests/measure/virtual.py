"""A clock that jumps over all waiting, and a server that lives on it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar

from autospec.measure.prompt import Message, Prompt
from autospec.measure.workload import Workload
from autospec.measurement import DecodeMoments, Request, RequestRecord, Sampling

T = TypeVar("T")


class _JumpingSelector(selectors.SelectSelector):
    """Instead of waiting for a time, be there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "nothing will ever happen again"
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in which sleeping takes no time."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds slept so far."""
        return self._jumping.now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def make_workload(count: int, *, classes: int = 1, tokens: int = 8) -> Workload:
    """Prompts ``prompt 0``, ``prompt 1``, ... in round-robin classes."""
    prompts = tuple(
        Prompt(i, i + 1, tokens, text=f"prompt {i}", label=f"class {i % classes}")
        for i in range(count)
    )
    return Workload("traffic.jsonl", prompts, Sampling(), fingerprint="0")


@dataclass(frozen=True, slots=True)
class _Limits:
    max_input_tokens: int
    max_running_requests: int


class VirtualServer:
    """Answers every request with ``max_new_tokens`` tokens, one a step of ``step_s`` seconds.

    Attributes:
        calls: everything asked of it, in order: ``flush``, or a prompt's index.
        most_in_flight: the most requests that were ever open at once.

    Args:
        compile_s: how much longer the first decode step of each batch size takes, for all that run.
        delivery_s: how long an answer travels after the server is done with it.
        forgets: whether a flush empties the prefix cache.
    """

    def __init__(
        self,
        *,
        max_input_tokens: int = 1000,
        max_running_requests: int = 1000,
        step_s: float = 0.1,
        first_s: float = 0.2,
        compile_s: float = 0.0,
        delivery_s: float = 0.0,
        change: Callable[[Request, RequestRecord], RequestRecord] = lambda _, record: record,
        counts_steps: bool = True,
        forgets: bool = True,
    ) -> None:
        self._limits = _Limits(max_input_tokens, max_running_requests)
        self.calls: list[str | int] = []
        self.tokenized: list[object] = []
        self.new_tokens: dict[int, list[int]] = {}
        self.foreign_tokens = 0
        self.foreign_prompt_tokens = 0
        self.in_flight = self.most_in_flight = 0
        self._step_s, self._first_s, self._change = step_s, first_s, change
        self._compile_s, self._delivery_s = compile_s, delivery_s
        self._compiled: set[int] = set()
        self._compiling_until_s = 0.0
        self._counts_steps, self._forgets = counts_steps, forgets
        self._steps = self._tokens = self._prefilled = 0
        self._prefixes: set[tuple[int, ...]] = set()

    async def server_info(self) -> _Limits:
        """Its limits."""
        return self._limits

    async def tokenize(
        self, *, text: str | None = None, messages: list[dict[str, str]] | None = None
    ) -> tuple[int, ...]:
        """The code points of the text, or of all contents after a template of one token a turn."""
        self.tokenized.append(text or messages)
        if messages is not None:
            return tuple(
                code for turn in messages for code in (1, *turn["content"].encode("utf-16-le"))
            )
        return tuple((text or "").encode("utf-16-le"))

    async def flush(self) -> None:
        """Forget everything; refused while a request is open, as the real one does."""
        assert self.in_flight == 0
        self.calls.append("flush")
        if self._forgets:
            self._prefixes.clear()

    async def decode_moments(self) -> DecodeMoments | None:
        """Totals since the start; every step has two requests."""
        if not self._counts_steps or not self._steps:
            return None
        us = self._steps * self._step_s * 1e6
        return DecodeMoments(
            num_steps=self._steps,
            sum_batch_size=self._steps * 2.0,
            sum_step_us=us,
            sum_batch_size_sq=self._steps * 4.0,
            sum_batch_step_us=us * 2,
            sum_tokens=float(self._tokens + self.foreign_tokens),
            sum_prefill_tokens=self._prefilled + self.foreign_prompt_tokens,
        )

    async def generate(self, request: Request) -> RequestRecord:
        """Stream one token a step."""
        self.calls.append(request.prompt)
        self.new_tokens.setdefault(request.prompt, []).append(request.max_new_tokens)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return self._change(request, await self._answer(request))
        finally:
            self.in_flight -= 1

    async def _answer(self, request: Request) -> RequestRecord:
        clock = asyncio.get_running_loop().time
        start_s, chunk_s = clock(), []
        cached = self._cached(request.input_ids)
        for step in range(request.max_new_tokens):
            await (self._step() if step else asyncio.sleep(self._first_s))
            chunk_s.append(clock())
        self._steps += request.max_new_tokens - 1
        self._tokens += request.max_new_tokens - 1
        server_latency_s = clock() - start_s
        await asyncio.sleep(self._delivery_s)
        return RequestRecord(
            prompt=request.prompt,
            start_s=start_s,
            end_s=clock(),
            label=request.label,
            chunk_s=tuple(chunk_s),
            chunk_tokens=tuple(range(1, request.max_new_tokens + 1)),
            prompt_tokens=len(request.input_ids),
            completion_tokens=request.max_new_tokens,
            cached_tokens=cached,
            finish_reason="stop",
            server_latency_s=server_latency_s,
        )

    async def _step(self) -> None:
        now = asyncio.get_running_loop().time()
        if self.in_flight not in self._compiled:
            self._compiled.add(self.in_flight)
            self._compiling_until_s = now + self._compile_s
        await asyncio.sleep(self._step_s + max(0.0, self._compiling_until_s - now))

    def _cached(self, prompt: tuple[int, ...]) -> int:
        """Tokens of a prompt that others left since the last flush; the last one never counts."""
        found = max(
            (len(prefix) for seen in self._prefixes if (prefix := _common(prompt, seen))),
            default=0,
        )
        cached = min(found, len(prompt) - 1)
        self._prefixes.add(prompt)
        self._prefilled += len(prompt) - cached
        return cached


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
    same = takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))
    return tuple(token for token, _ in same)


def chat(*turns: tuple[str, str]) -> tuple[Message, ...]:
    """A conversation of (role, content) pairs."""
    return tuple(Message(role, content) for role, content in turns)
