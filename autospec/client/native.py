"""SGLang's own ``/generate``: bodies and answers. No input or output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from autospec.client.events import Target
from autospec.engine import redact
from autospec.engine.payloads import decode_json, item, mapping, numbers, shorten
from autospec.engine.wire import GENERATE, STREAM_END, TOKENIZE, read_token_ids, tokenize_body
from autospec.errors import InputError, RequestError

__all__ = [
    "GENERATE",
    "TOKENIZE",
    "Generation",
    "Messages",
    "event_of",
    "generation_of",
    "make_body",
    "render_body",
    "token_ids_of",
]

#: A conversation, as the OpenAI API has it.
Messages = Sequence[Mapping[str, Any]]

_DATA: Final = "data:"
_ONE_PROMPT: Final = "give exactly one of text, messages and input_ids"


@dataclass(frozen=True, slots=True)
class Generation:
    """An answer of ``/generate``, or what there is of it so far.

    Attributes:
        text: the answer's text.
        output_ids: its tokens, where the server sends them.
        meta_info: what SGLang says of it; of its drafts, only when it has ended.
        server: who gave it.
    """

    text: str
    output_ids: tuple[int, ...]
    meta_info: Mapping[str, Any] = field(repr=False)
    server: Target

    @property
    def finish_reason(self) -> str | None:
        """``stop``, ``length`` or None while it goes on."""
        reason = self.meta_info.get("finish_reason")
        return reason.get("type") if isinstance(reason, dict) else None

    @property
    def accept_length(self) -> float | None:
        """Tokens a verify step; None where the server did not speculate or does not say."""
        steps = self.meta_info.get("spec_verify_ct")
        correct = self.meta_info.get("spec_num_correct_drafts")
        if not isinstance(steps, int) or not isinstance(correct, int) or steps < 1:
            return None
        return 1 + correct / steps


def make_body(
    text: str | None,
    input_ids: Sequence[int] | None,
    sampling_params: Mapping[str, Any] | None,
    extra: Mapping[str, Any],
    *,
    stream: bool,
) -> dict[str, Any]:
    """The body of a request for one prompt.

    Raises:
        InputError: not exactly one of text and token ids was given.
    """
    if (text is None) == (input_ids is None):
        raise InputError(_ONE_PROMPT)
    prompt = {"text": text} if input_ids is None else {"input_ids": list(input_ids)}
    return {**extra, **prompt, "sampling_params": dict(sampling_params or {}), "stream": stream}


def render_body(
    messages: Messages, text: str | None, input_ids: Sequence[int] | None
) -> dict[str, Any]:
    """The body of a request to render a conversation.

    Raises:
        InputError: there is another prompt beside it.
    """
    if text is not None or input_ids is not None:
        raise InputError(_ONE_PROMPT)
    return tokenize_body(messages=[dict(message) for message in messages])


def token_ids_of(response: httpx.Response) -> list[int]:
    """The token ids of a rendered conversation.

    Raises:
        RequestError: the server refused it.
        WireError: the answer is none of SGLang's.
    """
    return list(read_token_ids(_accepted(response, TOKENIZE)))


def generation_of(response: httpx.Response) -> Generation:
    """Read a whole answer.

    Raises:
        RequestError: the server refused or gave up the request.
        WireError: the answer is none of SGLang's.
    """
    return _generation(_accepted(response, GENERATE), response)


def event_of(line: str, response: httpx.Response) -> Generation | None:
    """Read a line of a stream; None where it says nothing or ends the stream.

    Raises:
        RequestError: it says that the request failed.
        WireError: it is none of SGLang's.
    """
    payload = line[len(_DATA) :].strip().encode() if line.startswith(_DATA) else b""
    return None if payload in {b"", STREAM_END} else _generation(payload, response)


def _accepted(response: httpx.Response, path: str) -> bytes:
    payload = response.content
    if response.status_code != 200:
        status = response.status_code
        raise RequestError(f"{path}: HTTP {status}: {redact.error_text(payload)}", status=status)
    return payload


def _generation(payload: bytes, response: httpx.Response) -> Generation:
    data = mapping(decode_json(payload, GENERATE), GENERATE)
    if "error" in data:
        raise RequestError(f"{GENERATE}: {redact.error_text(payload)}")
    meta = item(data, "meta_info", dict, GENERATE)
    reason = meta.get("finish_reason")
    if isinstance(reason, dict) and reason.get("type") == "abort":
        raise RequestError(f"{GENERATE}: given up by the server: {shorten(reason.get('message'))}")
    ids = data.get("output_ids") or []
    return Generation(
        text=item(data, "text", str, GENERATE, default=""),
        output_ids=numbers(ids, int, f"{GENERATE}: output_ids"),
        meta_info=meta,
        server=response.extensions["autospec.server"],
    )
