"""What the cost model reads off a configuration: how deep, how wide, how many tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autospec.config import SpecConfig

__all__ = ["MOST_DEPTH", "Shape", "method", "shape_of"]

#: Drafts a step beyond which the model looks no further: no published drafter gets that far.
MOST_DEPTH: Final = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """One configuration's work in a step.

    Attributes:
        method: what tells methods apart whose numbers do not compare.
        depth: drafts that one step can find right, at most ``MOST_DEPTH``; 0 is plain decoding.
        passes: passes of the draft model a step; 0 for a method without one.
        breadth: branches a pass drafts for each request.
        tokens: tokens verified for each request, root included.
        width: nodes a level, on average, that the tokens leave room for: 1 for a chain.
    """

    method: str
    depth: int
    passes: int
    breadth: int
    tokens: int
    width: float


def method(config: SpecConfig) -> str:
    """What tells methods apart whose numbers do not compare: algorithm, draft model, corpus."""
    return f"{config.algorithm} {config.draft_model or ''} {config.corpus or ''}"


def shape_of(config: SpecConfig) -> Shape:
    """Read a shape off a configuration.

    A drafter of whole blocks makes one pass. Without a depth of its own (n-grams), a method can
    fill its tokens with one path.
    """
    name = method(config)
    if config.is_plain:
        return Shape(name, 0, 0, 1, 1, 1.0)
    block = config.option("block_size")
    if isinstance(block, int):
        return Shape(name, min(max(1, block - 1), MOST_DEPTH), 1, 1, max(2, block), 1.0)
    steps, breadth = config.num_steps, config.topk or 1
    tokens = config.num_draft_tokens or (steps or 1) + 1
    if not steps:
        depth = min(max(1, tokens - 1), MOST_DEPTH)
        return Shape(name, depth, 0, 1, tokens, 1.0)
    depth = min(steps, MOST_DEPTH)
    width = min(max(1.0, (tokens - 1) / steps), float(breadth))
    return Shape(name, depth, steps, breadth, tokens, width)
