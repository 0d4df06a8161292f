"""Warnings of a study: one line a kind and arm."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.tuning.doubts import doubts
from tests.tune.fakes import measured

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)


def test_two_launches_of_one_arm_are_counted_together() -> None:
    """The arm's passes are those of all its launches."""
    base = measured(PLAIN, {1: (10, 10)})
    odd = replace(base, runs=(replace(base.runs[0], warnings=("1.5 s lost",)), base.runs[1]))
    late = replace(odd, runs=(replace(odd.runs[0], warnings=("22 s lost",)), base.runs[1]))
    assert doubts([odd, late]) == ("PLAIN: 1.5 s lost (2 of 4 passes)",)


def test_arms_are_not_mixed() -> None:
    """The same words about two arms are two lines."""
    arms = [replace(measured(c, {1: (10,)}), warnings=("odd",)) for c in (PLAIN, NGRAM)]
    assert doubts(arms) == ("PLAIN: odd", "NGRAM tokens=8: odd")


@given(st.lists(st.lists(st.sampled_from(["odd 1", "odd 2", "slow"]), max_size=3), max_size=4))
def test_no_kind_of_warning_is_lost(warnings: list[list[str]]) -> None:
    """Whatever the passes say, each kind stands in exactly one line."""
    base = measured(PLAIN, {1: [10.0] * (len(warnings) or 1)})
    runs = tuple(
        replace(run, warnings=tuple(lines))
        for run, lines in zip(base.runs, warnings or [[]], strict=True)
    )
    lines = doubts([replace(base, runs=runs)])
    kinds = {text.split()[0] for found in warnings for text in found}
    assert sorted(line.split()[1] for line in lines) == sorted(kinds)
