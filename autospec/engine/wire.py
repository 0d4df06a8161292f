"""What SGLang 0.5.23 says over HTTP: the only place that spells its paths and keys.

Functions turn a payload into a dataclass; ``WireError`` when a promised key is missing or has
another type. Requests go the other way, dataclass to body.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from autospec.engine import redact
from autospec.engine.payloads import decode_json, item, mapping, numbers, shorten
from autospec.errors import RequestError, WireError
from autospec.measurement import DecodeMoments, Request

__all__ = [
    "SPEC_KEYS_IGNORED",
    "SPEC_KEYS_READ",
    "ModelInfo",
    "Reply",
    "ServerInfo",
    "chunk_tokens",
    "generate_body",
    "logprobs_body",
    "read_decode_moments",
    "read_model_info",
    "read_next_logprobs",
    "read_reply",
    "read_server_info",
    "read_text",
    "read_token_ids",
    "tokenize_body",
]

READY: Final = "/ready"
SERVER_INFO: Final = "/server_info"
MODEL_INFO: Final = "/model_info"
TOKENIZE: Final = "/v1/tokenize"
GENERATE: Final = "/generate"
FLUSH: Final = "/flush_cache"
LOADS: Final = "/v1/loads?include=core"
METRICS: Final = "/metrics"
ABORT: Final = "/abort_request"
#: The payload that ends a stream of events.
STREAM_END: Final = b"[DONE]"
ABORT_ALL: Final = {"abort_all": True}

#: Speculative keys of ``meta_info`` that are read.
SPEC_KEYS_READ: Final = frozenset(
    {"spec_verify_ct", "spec_num_correct_drafts", "spec_correct_drafts_histogram"}
)
#: Speculative keys of ``meta_info`` that are known and not needed, with the reason.
SPEC_KEYS_IGNORED: Final = {
    "spec_num_proposed_drafts": "wrong once the draft length changes at run time",
    "spec_accept_rate": "not comparable between trees; follows from the histogram",
    "spec_accept_length": "counts the token from prefill, which no verify step made",
    "spec_cap_length": "DSPARK's own verify budget",
    "spec_cap_lens_histogram": "DSPARK's own verify budget",
    "spec_block_accept_length": "DSPARK's own verify budget",
}

_NOT_SETTINGS: Final = frozenset({"frontend", "launch_command", "status", "version"})
_COUNT_KEY: Final = b'"completion_tokens":'
_DIGITS: Final = re.compile(rb"\s*(\d+)")

Scalar = int | float | str | bool | None


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server as it describes itself after start-up.

    Attributes:
        version: SGLang's version.
        launch_command: the flags it was started with, secrets masked.
        resolved: its settings after it adjusted them; scalars only, no secrets. Graph batch sizes
            are one text under ``decode_cuda_graph_bs``.
        max_total_num_tokens: KV cache capacity, in tokens.
        max_running_requests: requests it decodes at once, over all data-parallel ranks.
        max_input_tokens: longest prompt it takes, in tokens.
        kv_cache_gb: memory of the target's KV cache, where it says so.
        num_steps: depth of drafting at this moment, which SGLang's own adaptive rule changes.
    """

    version: str
    launch_command: str
    resolved: dict[str, Scalar]
    max_total_num_tokens: int
    max_running_requests: int
    max_input_tokens: int
    kv_cache_gb: float | None = None
    num_steps: int | None = None


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The target as the server names it."""

    model_path: str
    served_model_name: str
    model_type: str | None
    architectures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """A finished answer; fields as in ``measurement.RequestRecord``."""

    output_ids: tuple[int, ...]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: str
    num_retractions: int
    verify_ct: int | None
    num_correct_drafts: int
    correct_histogram: tuple[int, ...]
    server_latency_s: float | None = None


def tokenize_body(
    text: str | None = None, messages: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """Body of a tokenize request; messages are rendered as for a chat completion."""
    return {"prompt": text} if messages is None else {"messages": messages}


def generate_body(request: Request, *, stream: bool) -> dict[str, Any]:
    """Body of a generate request; the end-of-text token ends the answer.

    That is said, since a server may have been started with other preferred sampling parameters.
    """
    return {
        "input_ids": list(request.input_ids),
        "sampling_params": {
            "max_new_tokens": request.max_new_tokens,
            "temperature": request.sampling.temperature,
            "top_p": request.sampling.top_p,
            "ignore_eos": False,
        },
        "stream": stream,
    }


def logprobs_body(input_ids: Sequence[int], top: int) -> dict[str, Any]:
    """Body of a request for the ``top`` most likely tokens after a sequence, greedily."""
    return {
        "input_ids": list(input_ids),
        "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
        "return_logprob": True,
        "top_logprobs_num": top,
        "stream": False,
    }


def chunk_tokens(event: bytes) -> int:
    """Output tokens so far, from one streamed event.

    A load generator calls this for every chunk, and a chunk repeats the whole answer so far, so
    the count is found without decoding the rest. Inside a JSON string the quotes would be escaped.

    Raises:
        RequestError: the event reports an error.
        WireError: the event is not one of SGLang's.
    """
    begin = event.rfind(_COUNT_KEY)
    found = _DIGITS.match(event, begin + len(_COUNT_KEY)) if begin >= 0 else None
    if found:
        return int(found[1])
    return read_reply(event).completion_tokens


def read_reply(payload: bytes) -> Reply:
    """Read a whole answer: a non-streamed body, or the last event of a stream.

    Raises:
        RequestError: it reports an error, or that the server gave the request up.
        WireError: it is not a finished answer of this engine version.
    """
    data = mapping(decode_json(payload, GENERATE), GENERATE)
    if "error" in data:
        raise RequestError(f"{GENERATE}: {redact.error_text(payload)}")
    meta = item(data, "meta_info", dict, GENERATE)
    where = f"{GENERATE}: meta_info"
    reason = item(meta, "finish_reason", dict, where)
    kind = item(reason, "type", str, f"{where}: finish_reason")
    if kind == "abort":
        raise RequestError(f"{GENERATE}: given up by the server: {shorten(reason.get('message'))}")
    histogram = numbers(meta.get("spec_correct_drafts_histogram") or [], int, where)
    # With a single draft slot SGLang sends the histogram alone.
    verify_ct = item(meta, "spec_verify_ct", int, where, default=sum(histogram) or None)
    correct = sum(number * count for number, count in enumerate(histogram))
    return Reply(
        output_ids=numbers(item(data, "output_ids", list, GENERATE), int, GENERATE),
        prompt_tokens=item(meta, "prompt_tokens", int, where),
        completion_tokens=item(meta, "completion_tokens", int, where),
        cached_tokens=item(meta, "cached_tokens", int, where),
        finish_reason=kind,
        num_retractions=item(meta, "num_retractions", int, where, default=0),
        verify_ct=verify_ct,
        num_correct_drafts=item(meta, "spec_num_correct_drafts", int, where, default=correct),
        correct_histogram=histogram,
        server_latency_s=item(meta, "e2e_latency", float, where, default=None),
    )


def read_text(payload: bytes) -> str:
    """Read the text of a whole answer; raises what ``read_reply`` does."""
    read_reply(payload)
    return str(item(mapping(decode_json(payload, GENERATE), GENERATE), "text", str, GENERATE))


def read_next_logprobs(payload: bytes) -> tuple[tuple[int, float], ...]:
    """Read the most likely next tokens and their log-probabilities, the likeliest first."""
    data = mapping(decode_json(payload, GENERATE), GENERATE)
    meta = item(data, "meta_info", dict, GENERATE)
    where = f"{GENERATE}: meta_info: output_top_logprobs"
    places = item(meta, "output_top_logprobs", list, f"{GENERATE}: meta_info")
    if len(places) != 1 or not isinstance(places[0], list) or not places[0]:
        raise WireError(f"{where}: must be of one token")
    found: list[tuple[int, float]] = []
    for entry in places[0]:
        if not isinstance(entry, list) or len(entry) < 2:
            raise WireError(f"{where}: must be lists of log-probability, token and text")
        token, logprob = numbers([entry[1]], int, where)[0], numbers([entry[0]], float, where)[0]
        found.append((token, logprob))
    return tuple(sorted(found, key=lambda pair: -pair[1]))


def read_token_ids(payload: bytes) -> tuple[int, ...]:
    """Read the token ids of one text or conversation."""
    data = mapping(decode_json(payload, TOKENIZE), TOKENIZE)
    return numbers(item(data, "tokens", list, TOKENIZE), int, TOKENIZE)


def read_model_info(payload: bytes) -> ModelInfo:
    """Read what the server says about its model."""
    data = mapping(decode_json(payload, MODEL_INFO), MODEL_INFO)
    return ModelInfo(
        model_path=item(data, "model_path", str, MODEL_INFO),
        served_model_name=item(data, "served_model_name", str, MODEL_INFO),
        model_type=item(data, "model_type", str, MODEL_INFO, default=None),
        architectures=tuple(str(name) for name in data.get("architectures") or ()),
    )


def read_server_info(payload: bytes) -> ServerInfo:
    """Read the server's resolved settings and capacities."""
    data = mapping(decode_json(payload, SERVER_INFO), SERVER_INFO)
    ranks = [
        mapping(rank, SERVER_INFO) for rank in item(data, "internal_states", list, SERVER_INFO)
    ]
    where = f"{SERVER_INFO}: internal_states"
    if not ranks:
        raise WireError(f"{where} is empty")
    frontend = item(data, "frontend", str, SERVER_INFO)
    if frontend != "python":
        raise WireError(
            f"{SERVER_INFO}: frontend is {frontend!r}, must be 'python': others lack counters"
        )
    running = [item(rank, "effective_max_running_requests_per_dp", int, where) for rank in ranks]
    resolved: dict[str, Scalar] = {
        key: value
        for key, value in data.items()
        if isinstance(value, Scalar) and key not in redact.SECRET_KEYS | _NOT_SETTINGS
    }
    # The setting is what was asked for; the KV cache may hold fewer.
    resolved["max_running_requests"] = sum(running)
    graph_sizes = ranks[0].get("decode_cuda_graph_bs") or []
    resolved["decode_cuda_graph_bs"] = " ".join(str(size) for size in graph_sizes)
    command = item(data, "launch_command", str, SERVER_INFO, default="")
    memory = item(ranks[0], "memory_usage", dict, where, default={})
    return ServerInfo(
        version=item(data, "version", str, SERVER_INFO),
        launch_command=redact.mask_flags(command),
        resolved=resolved,
        max_total_num_tokens=item(data, "max_total_num_tokens", int, SERVER_INFO),
        max_running_requests=sum(running),
        max_input_tokens=item(data, "max_req_input_len", int, SERVER_INFO),
        kv_cache_gb=memory.get("kvcache"),
        num_steps=item(ranks[0], "speculative_num_steps", int, where, default=None),
    )


def read_decode_moments(payload: bytes) -> DecodeMoments | None:
    """Read the decode counters, summed over data-parallel ranks; None where none are kept."""
    data = mapping(decode_json(payload, LOADS), LOADS)
    sums = [0.0] * 6
    prefilled: list[int | None] = []
    unfinished = 0
    for entry in item(data, "loads", list, LOADS):
        load = mapping(entry, LOADS)
        moments = load.get("decode_moments")
        if moments is None:
            return None
        values = numbers(moments, float, f"{LOADS}: decode_moments")
        if len(values) < len(sums):
            raise WireError(f"{LOADS}: decode_moments has {len(values)} items, must have 6")
        sums = [total + value for total, value in zip(sums, values, strict=False)]
        prefilled.append(item(load, "total_prefill_uncached_tokens", int, LOADS, default=None))
        for key in ("num_running_reqs", "num_waiting_reqs"):
            unfinished += item(load, key, int, LOADS, default=0)
    counted = [tokens for tokens in prefilled if tokens is not None]
    steps, batch, step_us, batch_sq, batch_step_us, tokens = sums
    return DecodeMoments(
        num_steps=int(steps),
        sum_batch_size=batch,
        sum_step_us=step_us,
        sum_batch_size_sq=batch_sq,
        sum_batch_step_us=batch_step_us,
        sum_tokens=tokens,
        sum_prefill_tokens=sum(counted) if len(counted) == len(prefilled) else None,
        num_unfinished=unfinished,
    )
