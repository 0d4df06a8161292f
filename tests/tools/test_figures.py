"""The accept length that is reckoned without an engine."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.demo_draft import card
from tools.demo_draft.figures import accept_length, agreement
from tools.demo_draft.plan import Plan
from tools.train_demo_draft import prompt_sets

ANSWERS = st.lists(st.lists(st.booleans(), min_size=2, max_size=30), min_size=1, max_size=5)


def test_chain_counts_drafts_up_to_the_first_wrong_one() -> None:
    """Two right drafts, then a wrong one: three tokens a step; the first token is not drafted."""
    assert accept_length([[False, True, True, False]], 3) == 3
    assert accept_length([[True, False, True]], 3) == pytest.approx(1.5)
    assert agreement([[True, False], [False, False]]) == 0.25


@given(ANSWERS, st.integers(1, 6))
def test_accept_length_lies_between_one_and_a_whole_chain(
    right: list[list[bool]], steps: int
) -> None:
    """A step yields the bonus token at least and every draft with it at most."""
    assert 1 <= accept_length(right, steps) <= steps + 1


@given(st.floats(0.1, 0.9), st.integers(1, 5))
def test_independent_drafts_give_the_geometric_sum(rate: float, steps: int) -> None:
    """With each draft right at one rate, it is ``1 + p + ... + p^steps``."""
    generator = random.Random(1)  # noqa: S311 - a seeded coin, no secret
    right = [[generator.random() < rate for _ in range(40_000)]]
    expected = sum(rate**power for power in range(steps + 1))
    assert accept_length(right, steps) == pytest.approx(expected, rel=0.03)


def test_card_written_again_keeps_the_figures_of_the_engine(tmp_path: Path) -> None:
    """Training anew changes what stands above them only."""
    path = tmp_path / "README.md"
    right = {"demo-mail": [[True, True, False, True]]}
    first = card.text(prompt_sets(4, 4, 4), right, Plan(), {"training": 60.0}, 100)
    card.write(path, first)
    assert "| demo-mail | 1 | 0.75 |" in path.read_text()
    path.write_text(path.read_text() + f"\n{card.ENGINE_MARK}\n\nmeasured\n")
    card.write(path, first.replace("seed 0", "seed 7"))
    assert "seed 7" in path.read_text()
    assert path.read_text().endswith(f"{card.ENGINE_MARK}\n\nmeasured\n")
