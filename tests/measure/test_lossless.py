"""The lossless check: pure parts on made-up answers, asking on a server that holds them."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec import schema
from autospec.errors import EngineError, MeasureError, RequestError, SchemaError
from autospec.fidelity import Agreement, Lossless
from autospec.measure.lossless import (
    NEAR_TIE,
    SIGNIFICANCE,
    Divergence,
    chance,
    check,
    collect,
    diverge,
    judge,
    weigh,
)
from autospec.measurement import Request, Sampling

answers = st.lists(st.integers(0, 3), max_size=6).map(tuple)
pairs = st.dictionaries(st.integers(0, 50), st.tuples(answers, answers), max_size=8)
margins = st.floats(0, 5, allow_nan=False) | st.just(math.inf)


def make_requests(count: int) -> list[Request]:
    """Prompts of two tokens each."""
    return [Request(at, (100, at), 8, sampling=Sampling(1.0)) for at in range(count)]


def divergences(*margins: float) -> tuple[Divergence, ...]:
    """One a margin, each of another prompt, at positions 0, 1, ..."""
    return tuple(Divergence(at, at, 1, 2, margin) for at, margin in enumerate(margins))


class BookServer:
    """Gives the answers it holds, and the same log-probabilities after any beginning.

    Attributes:
        calls: everything asked of it.
        most_in_flight: the most answers that were ever open at once.
    """

    def __init__(
        self,
        book: Mapping[int, tuple[int, ...]],
        likeliest: Sequence[tuple[int, float]] = (),
        failure: EngineError | None = None,
    ) -> None:
        self._book, self._likeliest, self._failure = book, tuple(likeliest), failure
        self.calls: list[object] = []
        self.in_flight = self.most_in_flight = 0

    async def flush(self) -> None:
        """Forget everything."""
        self.calls.append("flush")

    async def answer(self, request: Request) -> tuple[int, ...]:
        """The answer held, or the failure in place of that to prompt 2."""
        self.calls.append(request.prompt)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
        finally:
            self.in_flight -= 1
        if self._failure is not None and request.prompt == 2:
            raise self._failure
        return self._book[request.prompt]

    async def next_logprobs(
        self, input_ids: Sequence[int], *, top: int
    ) -> tuple[tuple[int, float], ...]:
        """The same whatever came before, or the failure."""
        self.calls.append(tuple(input_ids))
        if self._failure is not None:
            raise self._failure
        return self._likeliest[:top]


@given(pairs)
def test_divergences_are_the_first_differences(
    given_pairs: dict[int, tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    """Before the position both answers are the same, at it they are not, ends included."""
    plain = {prompt: pair[0] for prompt, pair in given_pairs.items()}
    other = {prompt: pair[1] for prompt, pair in given_pairs.items()}

    found = diverge(plain, other)

    assert [one.prompt for one in found] == sorted(p for p in plain if plain[p] != other[p])
    for one in found:
        ours, theirs = plain[one.prompt], other[one.prompt]
        assert ours[: one.position] == theirs[: one.position]
        assert one.plain == (ours[one.position] if one.position < len(ours) else None)
        assert one.other == (theirs[one.position] if one.position < len(theirs) else None)
        assert one.plain != one.other


@given(pairs)
def test_divergence_is_symmetric(
    given_pairs: dict[int, tuple[tuple[int, ...], tuple[int, ...]]],
) -> None:
    """Seen from the other side, the same places have their tokens exchanged."""
    plain = {prompt: pair[0] for prompt, pair in given_pairs.items()}
    other = {prompt: pair[1] for prompt, pair in given_pairs.items()}

    exchanged = [
        dataclasses.replace(one, plain=one.other, other=one.plain) for one in diverge(other, plain)
    ]

    assert list(diverge(plain, other)) == exchanged


def test_an_answer_cut_short_diverges_at_its_end() -> None:
    """A strict prefix is no equal answer."""
    assert diverge({0: (5, 6, 7)}, {0: (5, 6)}) == (Divergence(0, 2, 7, None),)


def test_answers_to_other_prompts_are_not_compared() -> None:
    """What only one side answered is no divergence but a mistake."""
    with pytest.raises(MeasureError, match="2 prompts have one answer"):
        diverge({0: (1,), 1: (1,)}, {0: (1,), 2: (1,)})


def test_collecting_flushes_first_and_keeps_to_the_concurrency() -> None:
    """Every prompt is asked once, after one flush, never more at once than asked for."""
    book = {at: (at, at) for at in range(7)}
    server = BookServer(book)

    assert asyncio.run(collect(server, make_requests(7), 3)) == book
    assert server.calls == ["flush", *range(7)]
    assert server.most_in_flight == 3


def test_a_lost_answer_fails_the_check() -> None:
    """Nothing is judged on what is left; the rest is not asked."""
    server = BookServer(dict.fromkeys(range(9), ()), failure=RequestError("HTTP 500:\n no"))

    with pytest.raises(MeasureError, match=r"of 9 greedy answers were lost.* HTTP 500: no$"):
        asyncio.run(collect(server, make_requests(9), 1))
    assert server.calls == ["flush", 0, 1, 2]


@pytest.mark.parametrize(
    ("requests", "concurrency", "message"),
    [
        (make_requests(2), 0, "concurrency is 0"),
        ([*make_requests(2), make_requests(1)[0]], 1, "a prompt is asked twice"),
    ],
)
def test_what_cannot_be_collected_is_refused(
    requests: list[Request], concurrency: int, message: str
) -> None:
    """No slot, or a prompt that a drafter would know by the second time."""
    with pytest.raises(MeasureError, match=message):
        asyncio.run(collect(BookServer({}), requests, concurrency))


@pytest.mark.parametrize(
    ("plain", "other", "margin"),
    [
        (7, 8, 0.25),
        (8, 7, 0.25),
        (8, 9, 2.0),
        (7, 5, math.inf),
        (None, 7, math.inf),
    ],
)
def test_a_margin_is_that_of_the_less_likely_token(
    plain: int | None, other: int | None, margin: float
) -> None:
    """It is measured from the likeliest token, after the common beginning."""
    server = BookServer({}, likeliest=[(7, -0.75), (8, -1.0), (9, -2.75)])
    found = Divergence(1, 2, plain, other)

    weighed = asyncio.run(weigh(server, make_requests(2), {1: (40, 41, 42)}, [found]))

    assert weighed == (dataclasses.replace(found, margin=margin),)
    assert server.calls == [(100, 1, 40, 41)]


def test_a_lost_weighing_fails_the_check() -> None:
    """A margin that is not known is not taken for wide."""
    server = BookServer({}, failure=RequestError("no connection"))
    with pytest.raises(MeasureError, match=r"log-probabilities.* no connection"):
        asyncio.run(weigh(server, make_requests(1), {0: (1,)}, [Divergence(0, 0, 1, 2)]))


@given(st.integers(1, 40), st.data())
def test_decisions_follow_their_definitions(prompts: int, data: st.DataObject) -> None:
    """Identical without a divergence, differing only with more wide ones than plain decoding."""
    lists = st.lists(margins, max_size=prompts)
    candidate, control = divergences(*data.draw(lists)), divergences(*data.draw(lists))

    result = judge(prompts, candidate, control)

    wide = [sum(one.margin > NEAR_TIE for one in found) for found in (candidate, control)]
    assert (result.decision == "identical") == (not candidate)
    if result.decision == "differs":
        assert wide[0] > wide[1]
    if not wide[0]:
        assert result.decision != "differs"
    assert (result.candidate.wide, result.control.wide) == tuple(wide)
    assert result.candidate.prompts == result.control.prompts == prompts


@given(st.integers(1, 40), st.data())
def test_judgement_is_monotone(prompts: int, data: st.DataObject) -> None:
    """A near-tie that turns wide never clears a candidate, nor convicts it in the control."""
    wide = data.draw(st.integers(0, prompts - 1))
    control_wide = data.draw(st.integers(0, prompts - 1))

    def differs(ours: int, theirs: int) -> bool:
        found = [divergences(*[9.0] * n, *[0.0] * (prompts - n)) for n in (ours, theirs)]
        return judge(prompts, *found).decision == "differs"

    assert differs(wide, control_wide) <= differs(wide + 1, control_wide)
    assert differs(wide, control_wide + 1) <= differs(wide, control_wide)


@given(st.integers(1, 200), st.data())
def test_chance_is_a_probability(prompts: int, data: st.DataObject) -> None:
    """Something of at least nothing is certain; more is less probable."""
    control_wide = data.draw(st.integers(0, prompts))
    chances = [chance(wide, control_wide, prompts) for wide in range(prompts + 1)]

    assert chances[0] == pytest.approx(1)
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] >= 0


@pytest.mark.parametrize(
    ("prompts", "control_wide", "least"),
    [(8, 0, 2), (16, 0, 2), (36, 0, 2), (100, 0, 3), (16, 1, 3), (36, 1, 4), (16, 4, 9)],
)
def test_few_wide_divergences_convict(prompts: int, control_wide: int, least: int) -> None:
    """The smallest number that plain decoding would hardly show, for small numbers of prompts."""
    assert chance(least - 1, control_wide, prompts) > SIGNIFICANCE
    assert chance(least, control_wide, prompts) <= SIGNIFICANCE


def test_wide_divergences_are_not_excused_by_near_ties_of_the_control() -> None:
    """As many divergences on both sides, but of another kind."""
    result = judge(16, divergences(*[4.0] * 5), divergences(*[0.1] * 5))

    assert result.decision == "differs"
    assert result.candidate.identical_share == result.control.identical_share == 11 / 16
    assert (result.candidate.near_tie_share, result.control.near_tie_share) == (0, 1)


def test_near_ties_alone_are_like_plain() -> None:
    """Another batch shape flips more of them; that says nothing of the method."""
    result = judge(16, divergences(*[0.1] * 12), ())

    assert result.decision == "like plain"
    assert result.candidate.positions == (2.75, 5.5, 8.25)
    assert result.candidate.widest == 0.1
    assert result.control == Agreement(16, 0, 0)


@given(st.integers(1, 40), st.data())
def test_a_result_survives_storage_without_any_token(prompts: int, data: st.DataObject) -> None:
    """What is written reads back the same, infinities included, and holds counts only."""
    found = divergences(*data.draw(st.lists(margins, max_size=prompts)))
    result = judge(prompts, found, ())

    document = schema.dump(result)

    assert schema.load(Lossless, document, "profile") == result
    assert document.keys() == {"decision", "candidate", "control", "near_tie_nats"}


@pytest.mark.parametrize(
    "change",
    [{"decision": "identical"}, {"candidate": Agreement(16, 0, 0)}],
)
def test_a_result_that_contradicts_itself_is_refused(change: dict[str, Any]) -> None:
    """``identical`` belongs to answers that all are."""
    result = judge(16, divergences(0.1), ())
    with pytest.raises(SchemaError, match="decision is"):
        dataclasses.replace(result, **change)


def test_more_divergences_than_prompts_are_refused() -> None:
    """Counts below zero, or of nothing, are a caller's mistake."""
    with pytest.raises(SchemaError, match="identical is -1"):
        judge(1, divergences(0.1, 0.1), ())
    with pytest.raises(SchemaError, match="prompts is 0"):
        judge(0, (), ())


@pytest.mark.parametrize(("concurrency", "control"), [(1, 2), (8, 4)])
def test_the_control_runs_at_another_concurrency(concurrency: int, control: int) -> None:
    """The second launch of plain decoding sees other batch shapes than the first."""
    book = {at: (at, 5) for at in range(16)}
    candidate = {**book, 3: (3, 6), 4: (4, 5, 6)}
    server = BookServer(book, likeliest=[(5, -0.1), (6, -0.2)])

    result = asyncio.run(check(server, make_requests(16), book, candidate, concurrency))

    assert server.most_in_flight == control
    assert result.candidate == Agreement(14, 1, 1, (1.25, 1.5, 1.75), 0.1)
    assert result.control == Agreement(16, 0, 0)
    assert result.decision == "like plain"
