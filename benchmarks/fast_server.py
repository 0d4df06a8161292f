"""A server that answers as a speculative SGLang server does, from answers already made.

``python benchmarks/fast_server.py STEP_S`` serves ``/generate`` and chat completions, whole and
streamed, until its standard input ends; its port goes to standard output. ``STEP_S`` is the time of
a verify step; at 0 whole answers are sent at once, so that a client is what limits.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from typing import Any, Final, cast

#: Verify steps of an answer, tokens of each, and drafts.
CHUNKS, CHUNK_TOKENS, DEPTH = 32, 3, 3
GENERATE, CHAT = "/generate", "/v1/chat/completions"
DETAILS: Final = {
    "spec_verify_ct": CHUNKS,
    "spec_num_correct_drafts": 2 * CHUNKS,
    "spec_num_proposed_drafts": DEPTH * CHUNKS,
    "spec_accept_rate": 0.67,
    "spec_accept_length": 3.0,
    "spec_correct_drafts_histogram": [4, 4, 12, 12],
}


class Stream(asyncio.Protocol):
    """One connection of the server."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep where to write."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer once head and body are complete."""
        self._buffer += data
        head, end, body = self._buffer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
        if not end or len(body) < int(length or 0):
            return
        self._buffer = b""
        path = head.split(b" ", 2)[1].decode()
        asked = b'"return_spec_tokens_details":true' in body
        pieces = ANSWERS[path, b'"stream":true' in body, asked]
        if self._step_s:
            asyncio.get_running_loop().create_task(self._answer(pieces))
        else:
            self._transport.write(b"".join(pieces))

    async def _answer(self, pieces: Sequence[bytes]) -> None:
        """A piece a step, at the times at which a busy server would send it."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        per_piece = CHUNKS // len(pieces) or 1
        for piece in pieces:
            due_s += per_piece * self._step_s
            await asyncio.sleep(due_s - loop.time())
            self._transport.write(piece)


def _json(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode()


def _event(data: Any) -> bytes:
    event = b"data: " + _json(data) + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def _whole(data: Any) -> list[bytes]:
    body = _json(data)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    return [head % len(body) + body]


def _stream(events: Sequence[Any]) -> list[bytes]:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    pieces = [_event(event) for event in events]
    pieces[0] = head + pieces[0]
    pieces[-1] += b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
    return pieces


def _generated(step: int) -> dict[str, Any]:
    """An answer of ``/generate`` after a step."""
    tokens = step * CHUNK_TOKENS
    last = step == CHUNKS
    meta = {
        "id": "0123456789abcdef0123456789abcdef",
        "finish_reason": {"type": "length", "length": tokens} if last else None,
        "prompt_tokens": 256,
        "completion_tokens": tokens,
        "cached_tokens": 0,
        "e2e_latency": 0.25,
        **(DETAILS if last else {}),
    }
    ids = list(range(10000, 10000 + tokens))
    return {"text": " word" * tokens, "output_ids": ids, "meta_info": meta}


def _chat(step: int | None, *, asked: bool) -> dict[str, Any]:
    """A whole chat completion, or the chunk of a step, the step after the last with details."""
    extension = {"sglext": {"spec_tokens_details": DETAILS}} if asked else {}
    head = {"id": "0123456789abcdef", "created": 1, "model": "m"}
    if step is None:
        message = {"role": "assistant", "content": " word" * CHUNKS * CHUNK_TOKENS}
        usage = {"prompt_tokens": 256, "completion_tokens": CHUNKS * CHUNK_TOKENS}
        choice = {"index": 0, "message": message, "finish_reason": "length"}
        return {
            **head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage,
        } | extension
    head["object"] = "chat.completion.chunk"
    if step > CHUNKS:
        return {**head, "choices": [], **extension}
    reason = "length" if step == CHUNKS else None
    delta = {"content": " word" * CHUNK_TOKENS}
    return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def _answers() -> dict[tuple[str, bool, bool], list[bytes]]:
    """What the server sends, by path, stream, and whether details are asked for."""
    made = {}
    for asked in (False, True):
        steps = range(1, CHUNKS + 1)
        made[GENERATE, False, asked] = _whole(_generated(CHUNKS))
        made[GENERATE, True, asked] = _stream([_generated(step) for step in steps])
        made[CHAT, False, asked] = _whole(_chat(None, asked=asked))
        chunks = [_chat(step, asked=asked) for step in range(1, CHUNKS + 1 + asked)]
        made[CHAT, True, asked] = _stream(chunks)
    return made


ANSWERS: Final = _answers()


async def serve(step_s: float) -> None:
    """Serve until standard input ends; the port goes to standard output."""
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, sys.exit)
    server = await loop.create_server(lambda: Stream(step_s), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
