"""What answers say of drafts, and how it is taken out of them again."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine import answers
from autospec.engine.answers import DetailsFilter, Drafts, DraftsReader
from autospec.errors import WireError

META: dict[str, Any] = {
    "spec_verify_ct": 7,
    "spec_num_correct_drafts": 12,
    "spec_correct_drafts_histogram": [1, 2, 2, 2],
}
FOUND = Drafts(7, 12, (1, 2, 2, 2))
#: A text that looks like metadata; in JSON its quotes are escaped.
TRAP = 'He wrote "spec_verify_ct": 9, "return_it": 1, "stream": true, "sglext": {}'

compact = st.booleans()
texts = st.text(max_size=30) | st.just(TRAP) | st.just("\n\ndata: x\n\n\u2028")


def dump(data: Any, *, small: bool = True) -> bytes:
    """JSON as servers write it, with or without spaces."""
    separators = (",", ":") if small else (", ", ": ")
    return json.dumps(data, separators=separators, ensure_ascii=not small).encode()


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data in pieces that may end anywhere."""
    ends = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@given(texts, compact)
def test_drafts_are_found_whatever_the_text_says(text: str, small: bool) -> None:
    """Only real keys count, in any order and spacing."""
    assert answers.read_drafts(dump({"text": text, "meta_info": META}, small=small)) == FOUND
    assert answers.read_drafts(dump({"text": text, "meta_info": {}}, small=small)) is None


@given(texts, st.lists(st.integers(0, 400), max_size=12))
def test_stream_is_read_whatever_its_pieces(text: str, cuts: list[int]) -> None:
    """The last event says it, wherever the network cuts."""
    events = [{"text": text, "meta_info": {}}, {"text": text * 2, "meta_info": META}]
    stream = b"".join(b"data: " + dump(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"
    reader = DraftsReader()
    for piece in pieces(stream, cuts):
        reader.feed(piece)
    assert reader.read() == FOUND


def test_several_answers_in_one_are_summed() -> None:
    """A request for several answers is one sample."""
    other = {**META, "spec_correct_drafts_histogram": [7], "spec_num_correct_drafts": 0}
    found = answers.read_drafts(dump([{"meta_info": META}, {"meta_info": other}]))
    assert found == Drafts(14, 12, (8, 2, 2, 2))
    assert found.accept_length == pytest.approx(1 + 12 / 14)


def test_histogram_alone_and_counts_alone_are_enough() -> None:
    """With one draft slot SGLang sends only the one; without a histogram the mean is kept."""
    histogram = {"spec_correct_drafts_histogram": [2, 3]}
    assert answers.read_drafts(dump(histogram)) == Drafts(5, 3, (2, 3))
    counts = {"spec_verify_ct": 4, "spec_num_correct_drafts": 6}
    assert answers.read_drafts(dump(counts)) == Drafts(4, 6, (0, 2, 2))


@pytest.mark.parametrize(
    "change",
    [
        {"spec_verify_ct": "many"},
        {"spec_verify_ct": -7},
        {"spec_verify_ct": 7.5},
        {"spec_verify_ct": None},
        {"spec_verify_ct": 8},
        {"spec_num_correct_drafts": 13},
        {"spec_correct_drafts_histogram": [-1, 8]},
        {"spec_correct_drafts_histogram": "no"},
        {"spec_correct_drafts_histogram": [[7]]},
        {"spec_correct_drafts_histogram": [0] * 2000 + [7]},
        {"spec_num_correct_drafts": 10**9, "spec_correct_drafts_histogram": []},
    ],
)
def test_untrue_accounts_are_refused(change: dict[str, Any]) -> None:
    """What cannot be true is no evidence."""
    with pytest.raises(WireError, match="meta_info"):
        answers.read_drafts(dump({"meta_info": {**META, **change}}))


@given(texts, st.lists(st.booleans(), max_size=3), compact)
def test_asking_adds_one_member_and_nothing_else(text: str, more: list[bool], small: bool) -> None:
    """The rest of the request is as it was."""
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "x": more}
    asking = answers.ask_for_details(dump(body, small=small))
    assert asking is not None
    assert json.loads(asking) == {"return_spec_tokens_details": True, **body}
    assert json.loads(answers.ask_for_details(b"{}") or b"") == {"return_spec_tokens_details": True}


@pytest.mark.parametrize(
    "body",
    [b"", b"[1]", b'"text"', b'{"return_spec_tokens_details": true}', b'{"return_meta_info":true}'],
)
def test_user_who_asks_for_extras_gets_what_was_asked_for(body: bytes) -> None:
    """Such a request goes out as it is."""
    assert answers.ask_for_details(body) is None


@given(texts, compact, st.booleans(), st.booleans())
def test_whole_answer_is_as_if_not_asked(text: str, small: bool, other: bool, last: bool) -> None:
    """Byte for byte, with SGLang's other extras left where they are."""
    plain: dict[str, Any] = {"id": "1", "choices": [{"message": {"content": text}}]}
    extras = {"cached_tokens_details": {"device": 1}} if other else {}
    tail = {} if last else {"z": [1]}
    asked = dump({**plain, "sglext": {**extras, "spec_tokens_details": META}, **tail}, small=small)
    unasked = dump({**plain, **({"sglext": extras} if other else {}), **tail}, small=small)
    assert answers.read_drafts(asked) == FOUND
    assert answers.without_details(asked) == unasked
    assert answers.without_details(unasked) == unasked


@given(st.lists(texts, max_size=4), st.lists(st.integers(0, 900), max_size=12), st.booleans())
def test_filtered_stream_is_as_if_not_asked(words: list[str], cuts: list[int], usage: bool) -> None:
    """Byte for byte, wherever the network cuts; the extra event is read and gone."""
    said = [b"data: " + dump({"choices": [{"delta": {"content": w}}]}) + b"\n\n" for w in words]
    extra = dump({"choices": [], "model": "m", "sglext": {"spec_tokens_details": META}})
    rest = [b'data: {"choices":[],"usage":{"total_tokens":3}}\n\n'] * usage + [b"data: [DONE]\n\n"]
    unasked = b"".join([*said, *rest])
    asked = b"".join([*said, b"data: " + extra + b"\n\n", *rest])
    for stream, found in ((asked, FOUND), (unasked, None), (unasked[:-3], None)):
        sieve = DetailsFilter()
        shown = b"".join(map(sieve.feed, pieces(stream, cuts))) + sieve.close()
        assert shown == (unasked if stream == asked else stream)
        assert sieve.reader.read() == found


def test_event_with_other_extras_keeps_them() -> None:
    """A server that is set up to send more goes on doing so."""
    extra = {"choices": [], "sglext": {"spec_tokens_details": META, "input_ids": [1]}}
    sieve = DetailsFilter()
    shown = sieve.feed(b"data: " + dump(extra) + b"\n\n")
    assert shown == b'data: {"choices":[],"sglext":{"input_ids":[1]}}\n\n'
    assert sieve.reader.read() == FOUND


@pytest.mark.parametrize(
    ("first", "code"),
    [
        (b'data: {"error": {"message": "m", "code": 503}}\n\n', 503),
        (b'data: {"error":{"code":400}}\n\n', 400),
        (b'data: {"error": {"message": "m"}}\n\n', 500),
        (b'data: {"text": "\\"error\\""}\n\n', None),
        (b"", None),
    ],
)
def test_error_at_the_begin_of_a_stream_is_seen(first: bytes, code: int | None) -> None:
    """SGLang answers 200 and then says what went wrong."""
    assert answers.stream_error(first) == code


@pytest.mark.parametrize("body", [b'{"stream": true}', b'{"a":1,"stream":true}'])
def test_stream_is_asked_for(body: bytes) -> None:
    """By a member of the request, and not by a word in the prompt."""
    assert answers.wants_stream(body)
    assert not answers.wants_stream(dump({"text": TRAP, "stream": False}))
