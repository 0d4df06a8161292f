"""Talks to one running SGLang server; also the load generator's hands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Final, Self

import aiohttp

from autospec.engine import live, redact, wire
from autospec.errors import EngineError, InputError, RequestError, WireError
from autospec.measurement import DecodeMoments, Request, RequestRecord, Sampling

__all__ = ["EngineClient", "EventParser"]

#: A connection idle for longer is not used again, in s. SGLang closes one after 5 s, and a request
#: that crosses with that is lost.
_IDLE_S: Final = 2.0
#: What a server that is gone, too slow or speaks no HTTP makes of a request.
_BROKEN: Final = (aiohttp.ClientError, aiohttp.http.HttpProcessingError, OSError)


class EngineClient:
    """One session with a server, as an async context manager.

    It limits nothing: as many requests run at once as are started.

    Args:
        url: the server's, such as ``http://127.0.0.1:30000``.
        api_key: sent as a bearer token; in no message.
        timeout_s: longest time one request may take.
        stall_timeout_s: longest time without a byte from the server, before the first one too;
            a request that waits longer in the server's queue is given up.

    No generation is sent a second time. Every method but ``generate`` and ``ready`` raises
    ``RequestError`` when the server refuses, cannot be reached or is too slow, and ``WireError``
    when its answer is not SGLang 0.5.23's.

    Raises:
        InputError: a timeout that is not above 0.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        stall_timeout_s: float = 120.0,
    ) -> None:
        for name, limit_s in (("timeout_s", timeout_s), ("stall_timeout_s", stall_timeout_s)):
            if not limit_s > 0:
                raise InputError(f"{name} is {limit_s}, must be above 0")
        self._url = url.rstrip("/")
        self._api_key = api_key
        self._timeout_s = timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._session_or_none: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        self._session_or_none = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
            timeout=aiohttp.ClientTimeout(
                total=self._timeout_s,
                sock_connect=self._stall_timeout_s,
                sock_read=self._stall_timeout_s,
            ),
            headers=headers,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session_or_none is not None:
            await self._session_or_none.close()
            self._session_or_none = None

    async def ready(self) -> bool:
        """Whether the server takes requests now."""
        try:
            await self._call("GET", wire.READY)
        except RequestError:
            return False
        return True

    async def server_info(self) -> wire.ServerInfo:
        """The server's resolved settings and capacities."""
        return wire.read_server_info(await self._call("GET", wire.SERVER_INFO))

    async def model_info(self) -> wire.ModelInfo:
        """The target as the server names it."""
        return wire.read_model_info(await self._call("GET", wire.MODEL_INFO))

    async def tokenize(
        self, text: str | None = None, messages: list[dict[str, Any]] | None = None
    ) -> tuple[int, ...]:
        """Token ids of a text, or of a conversation rendered with the chat template.

        The ids are those that a completion or a chat completion would begin from.
        """
        body = wire.tokenize_body(text, messages)
        return wire.read_token_ids(await self._call("POST", wire.TOKENIZE, body))

    async def generate(self, request: Request) -> RequestRecord:
        """Send one request, stream its answer and time each chunk.

        Whatever goes wrong stands in the record's ``error``; nothing is raised but cancellation.
        Chunks that arrived before a failure are kept.
        """
        chunk_s: list[float] = []
        chunk_tokens: list[int] = []
        start_s = time.perf_counter()
        reply, failure = None, None
        try:
            reply = await self._stream(request, chunk_s, chunk_tokens)
        except EngineError as error:
            failure = str(error)
        record = RequestRecord(
            prompt=request.prompt,
            label=request.label,
            start_s=start_s,
            end_s=time.perf_counter(),
            chunk_s=tuple(chunk_s),
            chunk_tokens=tuple(chunk_tokens),
            prompt_tokens=len(request.input_ids),
            completion_tokens=chunk_tokens[-1] if chunk_tokens else 0,
            error=failure,
        )
        if reply is None:
            return record
        return replace(
            record,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            cached_tokens=reply.cached_tokens,
            finish_reason=reply.finish_reason,
            verify_ct=reply.verify_ct,
            num_correct_drafts=reply.num_correct_drafts,
            correct_histogram=reply.correct_histogram,
            num_retractions=reply.num_retractions,
            server_latency_s=reply.server_latency_s,
        )

    async def answer(self, request: Request) -> tuple[int, ...]:
        """Token ids of the greedy answer, end-of-text token included.

        It is for comparing two servers' outputs: the request's own sampling is not used.
        """
        greedy = replace(request, sampling=Sampling())
        body = wire.generate_body(greedy, stream=False)
        payload = await self._call("POST", wire.GENERATE, body, self._silent())
        return wire.read_reply(payload).output_ids

    async def answer_text(self, request: Request) -> str:
        """The greedy answer as text, without special tokens."""
        body = wire.generate_body(replace(request, sampling=Sampling()), stream=False)
        return wire.read_text(await self._call("POST", wire.GENERATE, body, self._silent()))

    async def next_logprobs(
        self, input_ids: Sequence[int], *, top: int
    ) -> tuple[tuple[int, float], ...]:
        """The most likely next tokens after a sequence, as (token, log-probability).

        Args:
            input_ids: prompt, and whatever of an answer is taken as given.
            top: number of tokens, the likeliest first.
        """
        body = wire.logprobs_body(input_ids, top)
        payload = await self._call("POST", wire.GENERATE, body, self._silent())
        return wire.read_next_logprobs(payload)

    async def flush(self, timeout_s: float = 30.0) -> None:
        """Empty the prefix cache and the n-gram memory once the server is idle.

        Args:
            timeout_s: longest time the server waits for its running requests to end.
        """
        allowed = self._silent(timeout_s + self._stall_timeout_s)
        await self._call("POST", f"{wire.FLUSH}?timeout={timeout_s:g}", None, allowed)

    async def decode_moments(self) -> DecodeMoments | None:
        """The server's cumulative decode counters, or None where it keeps none.

        They are brought up to date every few steps and when the server goes idle.
        """
        return wire.read_decode_moments(await self._call("GET", wire.LOADS))

    async def loads(self) -> live.Loads:
        """What the server does at this moment."""
        return live.read_loads(await self._call("GET", wire.LOADS))

    async def metrics(self) -> str:
        """The Prometheus page; the server must have been started with ``enable_metrics``."""
        return (await self._call("GET", wire.METRICS)).decode("utf-8", "replace")

    async def abort_all(self) -> None:
        """Make the server give up every request it has."""
        await self._call("POST", wire.ABORT, wire.ABORT_ALL)

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._session_or_none is None:
            raise EngineError("the engine client is closed: use it inside 'async with'")
        return self._session_or_none

    def _silent(self, total_s: float | None = None) -> aiohttp.ClientTimeout:
        """For what is answered in one piece after a while: only the whole time is bounded."""
        return aiohttp.ClientTimeout(
            total=total_s or self._timeout_s, sock_connect=self._stall_timeout_s
        )

    async def _call(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        allowed: aiohttp.ClientTimeout | None = None,
    ) -> bytes:
        allowed = allowed or self._session.timeout
        try:
            async with self._session.request(
                method, self._url + path, json=body, timeout=allowed
            ) as response:
                payload = await response.read()
        except _BROKEN as error:
            raise _unanswered(path, error, allowed) from error
        if response.status != 200:
            raise _refused(path, response.status, payload)
        return payload

    async def _stream(
        self, request: Request, chunk_s: list[float], chunk_tokens: list[int]
    ) -> wire.Reply:
        """Fill the two lists as chunks arrive; returns what the last one says."""
        parser = EventParser()
        last = b""
        tokens = 0
        url = self._url + wire.GENERATE
        body = wire.generate_body(request, stream=True)
        try:
            async with self._session.post(url, json=body) as response:
                if response.status != 200:
                    raise _refused(wire.GENERATE, response.status, await response.read())
                async for piece in response.content.iter_any():
                    now = time.perf_counter()
                    for last in parser.feed(piece):
                        before, tokens = tokens, wire.chunk_tokens(last)
                        if tokens > before:
                            chunk_s.append(now)
                            chunk_tokens.append(tokens)
        except _BROKEN as error:
            raise _unanswered(wire.GENERATE, error, self._session.timeout) from error
        if not parser.done or not last:
            raise WireError(f"{wire.GENERATE}: the stream ended before its end mark")
        return wire.read_reply(last)


class EventParser:
    """Splits a server-sent event stream into the payloads of its ``data`` lines.

    SGLang sends one line an event; the pieces fed may end at any byte.

    Attributes:
        done: whether the stream's end mark was seen.
    """

    __slots__ = ("_rest", "done")

    def __init__(self) -> None:
        self._rest = b""
        self.done = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Take the next piece and return the payloads that it completed, end mark left out."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events = [line[5:].strip() for line in lines if line.startswith(b"data:")]
        if wire.STREAM_END in events:
            self.done = True
            return [event for event in events if event != wire.STREAM_END]
        return events


def _unanswered(path: str, error: Exception, allowed: aiohttp.ClientTimeout) -> RequestError:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return RequestError(f"{path}: no connection within {allowed.sock_connect:g} s")
    if isinstance(error, aiohttp.SocketTimeoutError):
        return RequestError(f"{path}: the server stalled: no byte for {allowed.sock_read:g} s")
    if isinstance(error, TimeoutError):
        return RequestError(f"{path}: no answer within {allowed.total:g} s")
    reason = " ".join(str(error).split()) or type(error).__name__
    return RequestError(f"{path}: connection failed: {reason}")


def _refused(path: str, status: int, payload: bytes) -> RequestError:
    return RequestError(f"{path}: HTTP {status}: {redact.error_text(payload)}", status=status)
