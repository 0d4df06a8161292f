"""The OpenAI endpoints of the fake server, with what SGLang adds to them on request."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.fake_model import Running, render, tokenize

if TYPE_CHECKING:
    from tests.fake_http import FakeServer

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_KEYS = (
    "spec_verify_ct",
    "spec_num_correct_drafts",
    "spec_num_proposed_drafts",
    "spec_accept_rate",
    "spec_accept_length",
    "spec_correct_drafts_histogram",
)


class OpenAIEndpoints:
    """Chat and text completions, streamed and whole, over the same pretend scheduler."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def routes(self) -> list[web.RouteDef]:
        """What to serve."""
        return [
            web.post(CHAT, self._complete),
            web.post(COMPLETIONS, self._complete),
            web.get("/v1/models", self._models),
        ]

    async def _models(self, request: web.Request) -> web.Response:
        name = self._server.settings["model_path"]
        return web.json_response({"object": "list", "data": [{"id": name, "object": "model"}]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        server, body = self._server, await request.json()
        server.requests.append(body)
        count = len(server.requests)
        failure = await server.fail(request, count)
        if failure is not None:
            return failure
        chat = request.path == CHAT
        ids = render(body["messages"]) if chat else tokenize(body["prompt"])
        limit = body.get("max_tokens") or body.get("max_completion_tokens") or 128
        running = server.submit(ids, {"max_new_tokens": limit}, count)
        if body.get("stream"):
            return await self._stream(request, body, running, count)
        while await running.chunks.get() < len(running.ids):
            pass
        return web.json_response(self._whole(body, running, count, chat=chat), dumps=_compact)

    def _details(self, body: dict[str, Any], running: Running, count: int) -> dict[str, Any]:
        meta = self._server.answer(running, running.sent, count)["meta_info"]
        if not body.get("return_spec_tokens_details") or "spec_verify_ct" not in meta:
            return {}
        details = {key: meta[key] for key in _KEYS}
        return {"sglext": {"spec_tokens_details": details}}

    def _whole(
        self, body: dict[str, Any], running: Running, count: int, *, chat: bool
    ) -> dict[str, Any]:
        text = _text(running, 0, len(running.ids))
        message = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
        prompt = len(running.input_ids)
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": len(running.ids),
            "total_tokens": prompt + len(running.ids),
        }
        return {
            **_head(body, running, "chat.completion" if chat else "text_completion"),
            "choices": [{"index": 0, **message, "finish_reason": running.reason}],
            "usage": usage,
            **self._details(body, running, count),
        }

    async def _stream(
        self, request: web.Request, body: dict[str, Any], running: Running, count: int
    ) -> web.StreamResponse:
        chat = request.path == CHAT
        head = _head(body, running, "chat.completion.chunk" if chat else "text_completion")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        fault = self._server.stream_fault(count)
        if fault == "silent":
            await self._server.wait()
        begin = 0
        while begin < len(running.ids):
            end = await running.chunks.get()
            text = _text(running, begin, end)
            part = {"delta": {"content": text}} if chat else {"text": text}
            reason = running.reason if end == len(running.ids) else None
            await _say(
                response, {**head, "choices": [{"index": 0, **part, "finish_reason": reason}]}
            )
            begin = end
            if fault == "stall":
                await self._server.wait()
            if fault == "cut":
                assert request.transport is not None
                request.transport.close()
                return response
        details = self._details(body, running, count)
        if details:
            await _say(response, {**head, "choices": [], **details})
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 1, "completion_tokens": begin, "total_tokens": begin + 1}
            await _say(response, {**head, "choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


def _head(body: dict[str, Any], running: Running, kind: str) -> dict[str, Any]:
    # The same prompt has the same id, so that two answers to it can be compared byte by byte.
    name = f"{hash(running.input_ids):x}"
    return {"id": name, "object": kind, "created": 1, "model": body.get("model", "m")}


def _text(running: Running, begin: int, end: int) -> str:
    return "".join(f" w{token}" for token in running.ids[begin:end])


def _compact(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False)


async def _say(response: web.StreamResponse, data: Any) -> None:
    await response.write(b"data: " + _compact(data).encode() + b"\n\n")
