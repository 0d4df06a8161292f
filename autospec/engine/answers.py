"""What an answer of SGLang 0.5.23 says of its drafts, found without decoding the rest of it.

``/generate`` always says it. The OpenAI endpoints say it when asked, in a member ``sglext`` of the
answer, or in one more event of a stream; both can be taken out again, byte for byte.

A key is looked for with its quotes: in a JSON string, so in any prompt or answer, they are escaped.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final

from autospec.errors import WireError

__all__ = [
    "DETAILS_PATHS",
    "GENERATION_PATHS",
    "HEALTH",
    "DetailsFilter",
    "Drafts",
    "DraftsReader",
    "ask_for_details",
    "read_drafts",
    "stream_error",
    "wants_stream",
    "without_details",
]

#: Answers at least one token, as soon as the server has time; 200 if all is well.
HEALTH: Final = "/health_generate"
#: OpenAI's endpoints that say of an answer's drafts when asked to.
DETAILS_PATHS: Final = frozenset({"/v1/completions", "/v1/chat/completions"})
#: Endpoints that generate and keep nothing, so that any server may answer them, at any time.
GENERATION_PATHS: Final = DETAILS_PATHS | {"/generate", "/v1/messages"}

_EXTENSION: Final = b'"sglext":'
_DETAILS: Final = b'"spec_tokens_details":'
_ASKING: Final = b'{"return_spec_tokens_details":true'
_HISTOGRAM: Final = (
    b'"spec_correct_drafts_histogram":',
    re.compile(rb'"spec_correct_drafts_histogram":\s*\[([\d,\s]*)\]'),
)
_VERIFY: Final = (b'"spec_verify_ct":', re.compile(rb'"spec_verify_ct":\s*(\d+)\s*[,}]'))
_CORRECT: Final = (
    b'"spec_num_correct_drafts":',
    re.compile(rb'"spec_num_correct_drafts":\s*(\d+)\s*[,}]'),
)
_KEY: Final = b'"spec_'
_STREAMS: Final = re.compile(rb'"stream"\s*:\s*true')
_ASKS_MORE: Final = re.compile(rb'"return_\w+"\s*:')
_ERROR_CODE: Final = re.compile(rb'"code":\s*(\d{3})\b')
_LONGEST_HISTOGRAM: Final = 1024
_MOST_KEPT: Final = 2**20


@dataclass(frozen=True, slots=True)
class Drafts:
    """How the drafts of one answer fared, or of several that came as one.

    Attributes:
        verify_ct: verify steps.
        num_correct_drafts: drafts that were right.
        histogram: number of steps by how many of their drafts were right.
    """

    verify_ct: int
    num_correct_drafts: int
    histogram: tuple[int, ...]

    @property
    def accept_length(self) -> float:
        """Tokens a verify step, the bonus token included."""
        return 1 + self.num_correct_drafts / self.verify_ct


def read_drafts(data: bytes) -> Drafts | None:
    """Read what is said of drafts; None where nothing is.

    Args:
        data: the answer, or any part of it that holds whole keys with their values.

    Raises:
        WireError: what is said cannot be true, or is no number.
    """
    if _KEY not in data:
        return None
    lists = [_counts(found) for found in _values(data, *_HISTOGRAM)]
    steps = [int(found) for found in _values(data, *_VERIFY)]
    correct = [int(found) for found in _values(data, *_CORRECT)]
    length = max(map(len, lists), default=0)
    histogram = tuple(
        sum(counts[at] for counts in lists if at < len(counts)) for at in range(length)
    )
    verify_ct = sum(steps) if steps else sum(histogram)
    if not verify_ct:
        return None
    if not sum(histogram):
        histogram = _flat(verify_ct, sum(correct))
    right = sum(at * count for at, count in enumerate(histogram))
    if sum(histogram) != verify_ct or (correct and sum(correct) != right):
        raise WireError(
            f"meta_info: {verify_ct} verify steps with {sum(correct)} correct drafts do not agree "
            f"with a histogram of {sum(histogram)} and {right}"
        )
    return Drafts(verify_ct, right, histogram)


def _values(data: bytes, key: bytes, pattern: re.Pattern[bytes]) -> list[bytes]:
    found = pattern.findall(data)
    if len(found) != data.count(key):
        raise WireError(f"meta_info: {key.decode()} is not followed by counts")
    return found


def _counts(text: bytes) -> list[int]:
    try:
        counts = [int(number) for number in text.split(b",")] if text.strip() else []
    except ValueError as error:
        raise WireError("meta_info: spec_correct_drafts_histogram is no list of counts") from error
    if len(counts) > _LONGEST_HISTOGRAM:
        raise WireError(f"meta_info: spec_correct_drafts_histogram has {len(counts)} counts")
    return counts


def _flat(verify_ct: int, correct: int) -> tuple[int, ...]:
    """The narrowest histogram with this sum, where the server sends none."""
    least, more = divmod(correct, verify_ct)
    if least > _LONGEST_HISTOGRAM:
        raise WireError(f"meta_info: {correct} correct drafts in {verify_ct} verify steps")
    return (*[0] * least, verify_ct - more, more)


class DraftsReader:
    """Finds what a stream says of drafts, piece by piece, and keeps nothing else of it."""

    __slots__ = ("_kept", "_size", "_tail")

    def __init__(self) -> None:
        self._tail = b""
        self._kept: list[bytes] = []
        self._size = 0

    def feed(self, piece: bytes) -> None:
        """Take the next piece; it may begin and end at any byte."""
        if not self._kept:
            window = self._tail + piece
            at = window.find(_KEY)
            if at < 0:
                self._tail = window[1 - len(_KEY) :]
                return
            piece = window[at:]
        if self._size < _MOST_KEPT:
            self._kept.append(piece)
            self._size += len(piece)

    def read(self) -> Drafts | None:
        """What was said.

        Raises:
            WireError: as ``read_drafts``.
        """
        return read_drafts(b"".join(self._kept))


def wants_stream(body: bytes) -> bool:
    """Whether a request asks for a stream."""
    return _STREAMS.search(body) is not None


def stream_error(first: bytes) -> int | None:
    """The code of the error that a stream begins with, and so ends with; None if it is none."""
    if not first.startswith(b'data: {"error"'):
        return None
    found = _ERROR_CODE.search(first)
    return int(found[1]) if found else 500


def ask_for_details(body: bytes) -> bytes | None:
    """The body of an OpenAI request that asks for what is said of drafts besides.

    None where the request asks for some extra of SGLang's by itself: the user is to see the answer
    to that as it is; and where the body is no JSON object.
    """
    if not body.startswith(b"{") or _ASKS_MORE.search(body):
        return None
    rest = body[1:].lstrip()
    return _ASKING + (b"" if rest.startswith(b"}") else b",") + rest


def without_details(answer: bytes) -> bytes:
    """An OpenAI answer as it would be if it had not been asked for details."""
    if _DETAILS not in answer:
        return answer
    try:
        return _without(answer, _EXTENSION if _says_nothing_else(answer) else _DETAILS)
    except ValueError:
        return answer


def _says_nothing_else(answer: bytes) -> bool:
    """Whether ``sglext`` has the details and no other member."""
    at = answer.find(_EXTENSION)
    return at >= 0 and list(_value(answer, at + len(_EXTENSION))[0]) == ["spec_tokens_details"]


def _without(answer: bytes, key: bytes) -> bytes:
    """JSON without one member and the comma that goes with it."""
    start = answer.find(key)
    end = _value(answer, start + len(key))[1]
    before, after = answer[:start].rstrip(), answer[end:].lstrip()
    if before.endswith(b","):
        return before[:-1] + answer[end:]
    return answer[:start] + (after[1:].lstrip() if after.startswith(b",") else after)


def _value(answer: bytes, at: int) -> tuple[Any, int]:
    """The JSON value at a place, and where it ends."""
    text = answer[at:].decode("utf-8", "surrogateescape")
    space = len(text) - len(text.lstrip())
    value, end = json.JSONDecoder().raw_decode(text, space)
    return value, at + len(text[:end].encode("utf-8", "surrogateescape"))


class DetailsFilter:
    """Takes out of a stream the event that answers ``ask_for_details``, and reads it.

    What it gives back is what the server would have sent without being asked. Of a line that has
    begun, nothing is given back before it has ended.
    """

    __slots__ = ("_after", "_held", "reader")

    def __init__(self) -> None:
        self.reader = DraftsReader()
        self._held = b""
        self._after = False

    def feed(self, piece: bytes) -> bytes:
        """Take the next piece; gives what may be passed on."""
        data = self._held + piece
        end = data.rfind(b"\n") + 1
        data, self._held = data[:end], data[end:]
        if not self._after and _DETAILS not in data:
            return data
        return b"".join(filter(None, map(self._pass, data.splitlines(keepends=True))))

    def close(self) -> bytes:
        """What was held back when the stream ended."""
        held, self._held = self._held, b""
        return self._pass(held)

    def _pass(self, line: bytes) -> bytes:
        """A line as it may be passed on."""
        if self._after:
            self._after = False
            if not line.strip():
                return b""
        if _DETAILS not in line or not line.startswith(b"data:"):
            return line
        self.reader.feed(line)
        try:
            self._after = b'"choices":[]' in line and _says_nothing_else(line)
        except ValueError:
            return line
        return b"" if self._after else without_details(line)
