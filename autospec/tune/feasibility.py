"""The chance that a configuration runs, from what failed and what ran. Pure.

A trial tells about its neighbours, and more about what is ordered with it: where a shape ran out of
memory, a larger one of its method will too, and where it ran, a smaller one will.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.tune.shapes import Shape

__all__ = ["chance_to_run"]

Floats = NDArray[np.float64]

#: Before anything failed, a shape that passed the offline check runs with this chance, and the
#: belief weighs as much as this many trials.
USUAL: Final = 0.97
WEIGHT: Final = 0.5
#: Distance at which a trial's weight has fallen to 0.6, in doublings of depth, breadth and tokens.
_REACH: Final = 1.0
#: What a trial of another method, but the same size, is worth.
_OTHER_METHOD: Final = 0.1


def chance_to_run(shapes: Sequence[Shape], tried: Sequence[tuple[Shape, bool]]) -> Floats:
    """Chance that each shape runs.

    Args:
        shapes: asked about.
        tried: shapes and whether they ran.

    Returns:
        From 0 to 1, shape (shapes,); never rising with the size of a shape, all else equal, as
        long as every failure is larger than every success.
    """
    if not shapes or not tried:
        return np.full(len(shapes), USUAL)
    sizes, known = _sizes(shapes), _sizes([shape for shape, _ in tried])
    names = np.array([shape.method for shape in shapes])
    known_names = np.array([shape.method for shape, _ in tried])
    ran = np.array([done for _, done in tried])
    apart = ((sizes[:, None, :] - known[None, :, :]) ** 2).sum(axis=2)
    weights: Floats = np.exp(-0.5 * apart / _REACH**2)
    larger = (sizes[:, None, :] >= known[None, :, :]).all(axis=2)
    smaller = (sizes[:, None, :] <= known[None, :, :]).all(axis=2)
    same = names[:, None] == known_names[None, :]
    ordered = same & np.where(ran[None, :], smaller, larger)
    weights = np.where(ordered, 1.0, weights * np.where(same, 1.0, _OTHER_METHOD))
    good = weights @ ran.astype(np.float64)
    chance: Floats = (WEIGHT * USUAL + good) / (WEIGHT + weights.sum(axis=1))
    return chance


def _sizes(shapes: Sequence[Shape]) -> Floats:
    rows = [(1 + shape.depth, shape.breadth, shape.tokens) for shape in shapes]
    sizes: Floats = np.log2(np.array(rows, dtype=np.float64)).reshape(-1, 3)
    return sizes
