"""What a drafter would gain, reckoned from the target's greedy answers without an engine.

A chain counts only up to its first wrong draft, and the drafts before that are the target's own
tokens. So one pass over the finished answer tells all: at each place, whether the drafter's most
likely token is the target's. That is what ``right`` holds, answer by answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["accept_length", "agreement"]


def agreement(right: Iterable[Sequence[bool]]) -> float:
    """Share of answer tokens that the drafter holds most likely."""
    places = [place for answer in right for place in answer]
    return sum(places) / len(places) if places else 0.0


def accept_length(right: Iterable[Sequence[bool]], steps: int) -> float:
    """Mean tokens a verify step of a chain, bonus token included.

    The first token of an answer comes from prefill and is not drafted.
    """
    tokens = verifies = 0
    for answer in right:
        place = 1
        while place < len(answer):
            drafted = answer[place : place + steps]
            correct = drafted.index(False) if False in drafted else len(drafted)
            place += correct + 1
            tokens += correct + 1
            verifies += 1
    return tokens / verifies if verifies else 1.0
