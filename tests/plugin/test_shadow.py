"""Shadow drafts against speculation itself, over texts and drafters that are drawn."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autospec.plugin.shadow import FOLLOWED, Shadows

TEXTS = st.lists(st.integers(0, 2), min_size=2, max_size=40)


def make_tree(text: list[int], end: int, seed: int) -> tuple[list[int], list[int]]:
    """A drafter's tree behind ``text[:end]``: tokens and parents of its nodes, root first."""
    drawn = np.random.default_rng([seed, end])
    tokens, parents = [text[end - 1]], [-1]
    for _ in range(drawn.integers(0, 6)):
        parent = int(drawn.integers(0, len(tokens)))
        token = int(drawn.integers(0, 3))
        if (parent, token) not in zip(parents, tokens, strict=True):
            parents.append(parent)
            tokens.append(token)
    return tokens, parents


def mask_of(parents: list[int]) -> list[list[bool]]:
    """Which nodes each node sees: its ancestors and itself."""
    rows: list[list[bool]] = []
    for node, parent in enumerate(parents):
        row = list(rows[parent]) if parent >= 0 else [False] * len(parents)
        row[node] = True
        rows.append(row)
    return rows


def speculate(text: list[int], seed: int) -> list[int]:
    """Correct drafts of each step, of the last as many as the text has."""
    end, counts = 1, list[int]()
    while True:
        tokens, parents = make_tree(text, end, seed)
        node = correct = 0
        while end + correct < len(text):
            nodes = zip(tokens, parents, strict=True)
            below = [
                i
                for i, (token, parent) in enumerate(nodes)
                if parent == node and token == text[end + correct]
            ]
            if not below:
                break
            node, correct = below[0], correct + 1
        if end + correct >= len(text):
            return [*counts, correct] if correct else counts
        counts.append(correct)
        end += correct + 1


@given(TEXTS, st.integers(0, 99))
def test_counts_are_those_of_speculation(text: list[int], seed: int) -> None:
    """Step by step the same, in the same order, whatever the shape of the trees."""
    shadows, counts = Shadows(), list[int]()
    for end in range(1, len(text) + 1):
        ended, places = shadows.follow(["a"], [text[end - 1]])
        counts += ended
        assert places in ([], [0])
        if places:
            tokens, parents = make_tree(text, end, seed)
            shadows.add(["a"], np.array(tokens), np.array(mask_of(parents)).ravel())
    ended, _ = shadows.follow(["b"], [0])
    assert counts + ended == speculate(text, seed)


def chains(shadows: Shadows, names: list[str], *rows: list[int]) -> None:
    """Give each request a chain."""
    size = len(rows[0])
    mask = np.tile(np.tril(np.ones((size, size), dtype=bool)).ravel(), len(names))
    shadows.add(names, np.array(rows).ravel(), mask)


def test_requests_are_told_apart_and_may_come_and_go() -> None:
    """In any order; of a request that left counts what had come true, if anything had."""
    shadows = Shadows()
    assert shadows.follow(["a", "b", "c"], [1, 5, 9]) == ([], [0, 1, 2])
    chains(shadows, ["a", "b", "c"], [1, 2, 3], [5, 6, 7], [9, 9, 9])
    assert shadows.follow(["b", "a"], [6, 2]) == ([], [])
    assert shadows.follow(["c", "b", "a"], [9, 7, 4]) == ([1], [0, 2])
    chains(shadows, ["c", "a"], [9, 0, 0], [4, 0, 0])
    assert shadows.follow(["a", "b"], [0, 1]) == ([2], [1])
    chains(shadows, ["b"], [1, 2, 3])
    assert shadows.follow(["d"], [1]) == ([1], [0])


def test_what_was_not_followed_is_forgotten() -> None:
    """After steps of speculation no draft stands where it stood."""
    shadows = Shadows()
    shadows.follow(["a"], [1])
    chains(shadows, ["a"], [1, 2, 3])
    shadows.clear()
    assert shadows.follow(["a"], [2]) == ([], [0])


def test_a_large_batch_costs_no_more_than_a_small_one() -> None:
    """Only so many are drafted for at once; when one leaves, another takes its place."""
    shadows, names = Shadows(), [f"r{place}" for place in range(100)]
    _, places = shadows.follow(names, [0] * 100)
    assert places == list(range(FOLLOWED))
    chains(shadows, names[:FOLLOWED], *[[0, 0]] * FOLLOWED)
    assert shadows.follow(names[1:], [0] * 99) == ([], [FOLLOWED - 1])
