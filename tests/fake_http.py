"""The HTTP side of the fake server: SGLang's paths, keys, refusals and speculative counters."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from tests.fake_model import (
    CONTEXT_LENGTH,
    TEMPLATE,
    Running,
    Scheduler,
    change,
    most_likely,
    render,
    resolve,
    tokenize,
)
from tests.fake_openai import OpenAIEndpoints

_SAMPLING = {"max_new_tokens", "temperature", "top_p", "top_k", "min_p", "stop", "ignore_eos", "n"}
_IN_STREAM = ("silent", "cut", "stall", "garbage")
_OPEN_PATHS = {"/ready", "/health", "/health_generate", "/metrics"}


def _faults(text: str, algorithm: str) -> dict[str, str]:
    """The faults that apply to an algorithm, value by kind."""
    found: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        kind, _, rest = item.partition(":")
        value, _, only = rest.partition("@")
        if kind.endswith("_on"):
            only = value
        if only in ("", algorithm):
            found[kind] = value
    return found


class FakeServer:
    """The HTTP side: one pretend server with its settings and its memory of what was asked."""

    def __init__(self, asked: Mapping[str, Any], faults: str = "", step_s: float = 0.002) -> None:
        self.settings = resolve(asked)
        self.launch_command = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in asked.items())
        self.algorithm = self.settings["speculative_algorithm"] or "PLAIN"
        self.faults = _faults(faults, self.algorithm)
        self.context = self.settings["context_length"] or CONTEXT_LENGTH
        self.ready = False
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.flushes = 0
        self.aborts = 0
        self._step_s = step_s

    async def serve(self, host: str, port: int) -> int:
        """Listen, and be ready after the start-up delay; returns the port."""
        self.scheduler = Scheduler(self.settings, self._step_s)
        self._closing = asyncio.Event()
        self._stepping = asyncio.create_task(self.scheduler.run())
        app = web.Application(middlewares=[self._authorise], client_max_size=2**26)
        app.add_routes(
            [
                *(
                    web.get(path, self._health)
                    for path in ("/ready", "/health", "/health_generate")
                ),
                web.get("/server_info", self._server_info),
                web.get("/model_info", self._model_info),
                web.get("/v1/loads", self._loads),
                *([web.get("/metrics", self._metrics)] if self.settings["enable_metrics"] else []),
                web.post("/v1/tokenize", self._tokenize),
                web.post("/generate", self._generate),
                web.post("/flush_cache", self._flush),
                web.post("/set_internal_state", self._set_internal_state),
                web.post("/abort_request", self._abort),
                *OpenAIEndpoints(self).routes(),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.5)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def start_up(self) -> None:
        """Take as long as the faults say to become ready."""
        if "hang_on" in self.faults:
            await asyncio.Event().wait()
        await asyncio.sleep(float(self.faults.get("slow_start", 0)))
        self.ready = True

    async def close(self) -> None:
        """Stop listening and stepping, and drop what still runs."""
        self._closing.set()
        await self._runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        # Transports close in the turns of the loop that follow.
        await asyncio.sleep(0.01)

    @web.middleware
    async def _authorise(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.paths.append(request.path)
        key = self.settings["api_key"]
        given = request.headers.get("Authorization")
        if key and request.path not in _OPEN_PATHS and given != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.ready else 503)

    async def _server_info(self, request: web.Request) -> web.Response:
        state = {
            **TEMPLATE["internal_states"][0],
            **{key: self.settings[key] for key in self.settings if key != "internal_states"},
            "effective_max_running_requests_per_dp": self.scheduler.limit,
        }
        info = {
            **self.settings,
            "launch_command": self.launch_command,
            "max_total_num_tokens": self.settings["max_total_tokens"] or 20000,
            "max_req_input_len": self.context - 6,
            "internal_states": [state],
        }
        return web.json_response(info)

    async def _model_info(self, request: web.Request) -> web.Response:
        path = self.settings["model_path"]
        name = self.settings["served_model_name"] or path
        info = {"model_path": path, "served_model_name": name, "model_type": "llama"}
        return web.json_response(info | {"architectures": ["LlamaForCausalLM"]})

    async def _loads(self, request: web.Request) -> web.Response:
        load = {
            "dp_rank": 0,
            "num_running_reqs": len(self.scheduler.running),
            "num_waiting_reqs": len(self.scheduler.waiting),
            "gen_throughput": 40.0 if self.scheduler.running else 0.0,
            "total_prefill_uncached_tokens": self.scheduler.prefilled,
        }
        return web.json_response({"loads": [load | {"decode_moments": self.scheduler.moments}]})

    async def _metrics(self, request: web.Request) -> web.Response:
        tokens = self.scheduler.moments[5]
        name = "sglang:realtime_tokens_total"
        return web.Response(
            text=f'# TYPE {name} counter\n{name}{{mode="decode",tp_rank="0"}} {tokens}\n'
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        prompt, messages = body.get("prompt"), body.get("messages")
        if (prompt is None) == (messages is None):
            return _refuse("Exactly one of 'prompt' or 'messages' must be provided.")
        if messages is not None and any("content" not in m or "role" not in m for m in messages):
            # As SGLang words it: the reason, and then the input.
            return _refuse(
                f"1 validation error:\n  {{'type': 'missing', 'loc': ('body', "
                f"'messages', 0), 'msg': 'Field required', 'input': {messages[0]}}}"
            )
        ids = tokenize(prompt) if messages is None else render(messages)
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": self.context})

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.requests.append(body)
        count = len(self.requests)
        failure = await self.fail(request, count)
        if failure is not None:
            return failure
        preferred = self.settings["preferred_sampling_params"] or {}
        sampling = {**preferred, **body.get("sampling_params", {})}
        for name in sampling.keys() - _SAMPLING:
            expected = ", ".join(f"`{known}`" for known in sorted(_SAMPLING))
            return _refuse(f"unknown field `{name}`, expected one of {expected}", flat=True)
        ids = body["input_ids"] if "input_ids" in body else tokenize(body["text"])
        problem = self._too_long(len(ids), sampling.get("max_new_tokens", 128))
        if problem and not body.get("stream"):
            return _refuse(problem)
        if problem:
            error = {"message": problem, "type": "invalid_request_error", "code": 400}
            return await _stream(request, [_event({"error": error}), b"data: [DONE]\n\n"])
        if body.get("return_logprob"):
            return self._logprobs(ids, body["top_logprobs_num"])
        running = self.submit(ids, sampling, count)
        if body.get("stream"):
            return await self._stream_answer(request, running, count)
        while await running.chunks.get() < len(running.ids):
            pass
        return web.json_response(self.answer(running, running.sent, count))

    def stream_fault(self, count: int) -> str | None:
        """What goes wrong with the stream of a request."""
        return next((kind for kind in _IN_STREAM if _every(self.faults.get(kind), count)), None)

    async def wait(self) -> None:
        """Do nothing until the server stops."""
        await self._closing.wait()
        raise asyncio.CancelledError

    async def fail(self, request: web.Request, count: int) -> web.Response | None:
        """The failure of a request before anything of its answer is sent."""
        if count > int(self.faults.get("die_after", count)):
            die("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        if _every(self.faults.get("http500"), count):
            return web.Response(status=500, text="Internal Server Error")
        if _every(self.faults.get("drop"), count):
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        if _every(self.faults.get("hang"), count):
            await self.wait()
        return None

    def submit(self, ids: list[int], sampling: Mapping[str, Any], count: int) -> Running:
        """Queue a request."""
        endless = sampling.get("ignore_eos", False)
        running = self.scheduler.submit(ids, sampling.get("max_new_tokens", 128), endless=endless)
        for fault, by in (("lossy", 1), ("tied", 2)):
            if _every(self.faults.get(fault), count):
                running.ids = change(running.ids, by)
        return running

    def _logprobs(self, ids: list[int], top: int) -> web.Response:
        prompts = [body["input_ids"] for body in self.requests if "return_logprob" not in body]
        likely = [[logprob, token, None] for logprob, token in most_likely(ids, prompts, top)]
        meta = {"finish_reason": {"type": "length"}, "output_top_logprobs": [likely]}
        return web.json_response({"output_ids": [likely[0][1]], "meta_info": meta})

    def _too_long(self, tokens: int, new_tokens: int) -> str | None:
        if tokens >= self.context:
            return (
                f"The input ({tokens} tokens) is longer than the model's context length "
                f"({self.context} tokens)."
            )
        if tokens + new_tokens > self.context:
            return (
                f"Requested token count exceeds the model's maximum context length of "
                f"{self.context} tokens. You requested a total of {tokens + new_tokens} tokens."
            )
        return None

    async def _stream_answer(
        self, request: web.Request, running: Running, count: int
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        fault = self.stream_fault(count)
        if fault == "silent":
            await self.wait()
        sent = 0
        while sent < len(running.ids):
            sent = await running.chunks.get()
            await response.write(_event(self.answer(running, sent, count)))
            if fault == "stall":
                await self.wait()
            if fault == "garbage":
                await response.write(b'data: {"text": "half of an ans\n\n')
            if fault == "cut":
                assert request.transport is not None
                request.transport.close()
                return response
        await response.write(b"data: [DONE]\n\n")
        return response

    def answer(self, running: Running, sent: int, count: int) -> dict[str, Any]:
        """An answer as far as it goes, with what is said of it."""
        meta: dict[str, Any] = {
            "id": f"{id(running):x}",
            "finish_reason": None,
            "prompt_tokens": len(running.input_ids),
            "num_retractions": 0,
            "completion_tokens": sent,
            "cached_tokens": running.cached_tokens,
        }
        if sent == len(running.ids) or running.reason == "abort":
            meta["finish_reason"] = {"type": running.reason}
            meta["e2e_latency"] = time.perf_counter() - running.created_s
            steps = sum(running.histogram)
            if steps:
                correct = sum(at * number for at, number in enumerate(running.histogram))
                proposed = steps * (self.settings["speculative_num_draft_tokens"] - 1)
                meta |= {
                    "spec_verify_ct": steps,
                    "spec_num_correct_drafts": correct,
                    "spec_num_proposed_drafts": proposed,
                    "spec_accept_rate": correct / max(proposed, 1),
                    "spec_accept_length": sent / steps,
                    "spec_correct_drafts_histogram": running.histogram,
                }
            if _every(self.faults.get("untrue"), count):
                meta |= {"spec_verify_ct": "many", "spec_correct_drafts_histogram": [-1, None]}
        ids = running.ids[:sent]
        return {
            "text": " ".join(f"w{token}" for token in ids),
            "output_ids": ids,
            "meta_info": meta,
        }

    async def _flush(self, request: web.Request) -> web.Response:
        deadline = time.monotonic() + float(request.query.get("timeout", 0))
        while self.scheduler.busy and time.monotonic() < deadline:  # noqa: ASYNC110 -- as the real one does
            await asyncio.sleep(0.01)
        if self.scheduler.busy:
            return web.Response(status=400, text="Flush cache failed.\n")
        self.flushes += 1
        self.scheduler.flush()
        return web.Response(text="Cache flushed.\n")

    async def _set_internal_state(self, request: web.Request) -> web.Response:
        return web.json_response([False])

    async def _abort(self, request: web.Request) -> web.Response:
        self.aborts += 1
        self.scheduler.abort_all()
        return web.Response()


def _every(nth: str | None, count: int) -> bool:
    return nth is not None and count % int(nth) == 0


def _event(data: Any) -> bytes:
    return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


async def _stream(request: web.Request, events: Sequence[bytes]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(event)
    return response


def _refuse(message: str, *, flat: bool = False) -> web.Response:
    return web.json_response({"error": message if flat else {"message": message}}, status=400)


def say(text: str) -> None:
    """Write a line where SGLang logs."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def die(text: str) -> None:
    """Die as SGLang does: it kills itself."""
    say(text)
    os.kill(os.getpid(), signal.SIGKILL)
