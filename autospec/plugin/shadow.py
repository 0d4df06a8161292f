"""Drafts that nobody verifies: what speculation would have made while decoding is plain.

A draft that costs no more than a look into a corpus can be held against the tokens that plain
decoding makes anyway. Those of its tokens that follow suit are its correct drafts, as many as
verification would have found: it accepts a draft with the probability that the target model samples
it. The first token that the draft does not have is the bonus token, and the next draft begins
behind it, where the next step of speculation would have begun. So the counts are those of
speculation, at the price of the look.

Pure, and alike on all ranks that are given the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["FOLLOWED", "Shadows"]

#: Requests of a batch that are drafted for at once: enough to learn from, and a bound on the price.
FOLLOWED: Final = 4


@dataclass(slots=True)
class _Draft:
    """A tree of tokens, its root the last token that was known, and how far it came true.

    Attributes:
        tokens: of each node.
        visible: row ``i`` has the ancestors of node ``i`` and itself.
        levels: of each node; the root's is 0.
        node: the last node that came true.
        correct: its level.
    """

    tokens: list[int]
    visible: list[list[bool]]
    levels: list[int]
    node: int = 0
    correct: int = 0

    def follows(self, token: int) -> bool:
        """Take the token that was made; whether the draft had it."""
        for node in range(self.node + 1, len(self.tokens)):
            below = self.levels[node] == self.correct + 1 and self.visible[node][self.node]
            if below and self.tokens[node] == token:
                self.node, self.correct = node, self.correct + 1
                return True
        return False


class Shadows:
    """The drafts of a batch in plain decoding."""

    def __init__(self) -> None:
        self._drafts: dict[str, _Draft] = {}

    def follow(self, names: Sequence[str], tokens: Sequence[int]) -> tuple[list[int], list[int]]:
        """Hold the drafts against the tokens of a step. To be called for every plain step.

        Args:
            names: of the requests in the batch, in order.
            tokens: the latest of each.

        Returns:
            Correct drafts of each draft that came to its end, and the places of the requests that
            are to be drafted for now.
        """
        kept: dict[str, _Draft] = {}
        ended: list[int] = []
        places: list[int] = []
        for place, name in enumerate(names[:FOLLOWED]):
            draft = self._drafts.get(name)
            if draft is not None and draft.follows(tokens[place]):
                kept[name] = draft
                continue
            places.append(place)
            if draft is not None:
                ended.append(draft.correct)
        # An answer that ended within a draft made use of what had come true by then.
        left = [draft for name, draft in self._drafts.items() if name not in names]
        ended += [draft.correct for draft in left if draft.correct]
        self._drafts = kept
        return ended, places

    def add(self, names: Sequence[str], tokens: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        """Take new drafts.

        Args:
            names: of the requests that they are for.
            tokens: of all trees' nodes, a tree after another, each of the same size.
            mask: of each node, which nodes of its tree it sees.
        """
        size = len(tokens) // len(names)
        trees = mask.reshape(len(names), size, size) != 0
        levels = (trees.sum(axis=2) - 1).tolist()
        rows = tokens.reshape(len(names), size).tolist()
        for name, row, tree, level in zip(names, rows, trees.tolist(), levels, strict=True):
            self._drafts[name] = _Draft(row, tree, level)

    def clear(self) -> None:
        """Forget all: tokens were made that were not followed."""
        self._drafts.clear()
