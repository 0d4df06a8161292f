"""What a decode step consists of, and what is believed of each part before a measurement. Pure.

Each part is a column of a design whose rows are step times; ``steptime`` has the formula and the
fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.tune.shapes import Shape

__all__ = ["OWN", "SHARED", "Timed", "design_of", "prior_of", "with_knee"]

Floats = NDArray[np.float64]

#: Mean and standard deviation of each part before anything is measured, in shares of the time of
#: a step of plain decoding alone.
SHARED: Final = {
    "floor": (0.9, 0.5),
    "request": (0.01, 0.05),
    "token": (0.01, 0.05),
    # What the tokens up to the knee cost is the floor, so that as many more cost about as much.
    "beyond": (0.9, 0.5),
}
OWN: Final = {
    "fixed": (0.3, 0.8),
    "draft": (0.06, 0.1),
    "branch": (0.002, 0.01),
    "check": (0.0, 0.02),
}
#: How much of a method's uncertainty is its own, the rest being common to all methods here.
_OWN_SHARE: Final = 0.97


@dataclass(frozen=True, slots=True)
class Timed:
    """One step time seen.

    Attributes:
        shape: what ran.
        batch_size: running requests.
        step_time: any unit, the same for all.
        error: relative standard error beyond that of the model; 0 when exact.
    """

    shape: Shape
    batch_size: float
    step_time: float
    error: float = 0.0


def design_of(shapes: Sequence[Shape], batches: Floats, methods: Sequence[str]) -> Floats:
    """One row a step time, one column a part: the target's, then each method's.

    The column of what lies beyond the knee is left at 0; see ``with_knee``.
    """
    b = np.asarray(batches, dtype=np.float64)
    v = np.array([shape.tokens for shape in shapes], dtype=np.float64)
    k = np.array([shape.passes for shape in shapes], dtype=np.float64)
    w = np.array([shape.breadth for shape in shapes], dtype=np.float64)
    drafts = np.array([shape.depth > 0 for shape in shapes], dtype=np.float64)
    target = np.stack([np.ones(len(shapes)), b, b * v, np.zeros(len(shapes))], axis=1)
    own = np.stack([drafts, k, k * b * w, b * (v - 1.0)], axis=1)
    places = {name: len(SHARED) + len(OWN) * i for i, name in enumerate(methods)}
    starts = np.array([places[shape.method] for shape in shapes], dtype=np.int64)
    design = np.zeros((len(shapes), len(SHARED) + len(OWN) * len(methods)))
    design[:, : len(SHARED)] = target
    columns = starts[:, None] + np.arange(len(OWN))[None, :]
    design[np.arange(len(shapes))[:, None], columns] = own
    return design


def with_knee(design: Floats, work: Floats, knee: float) -> Floats:
    """The same with the knee at a place.

    Args:
        design: of ``design_of``.
        work: tokens a step, shape (n,).
        knee: tokens a step, or infinite.
    """
    placed = design.copy()
    placed[:, list(SHARED).index("beyond")] = np.maximum(0.0, work / knee - 1.0)
    return placed


def prior_of(methods: Sequence[str]) -> tuple[Floats, Floats]:
    """Rows and targets of what is believed, with a common value of each own part at the end."""
    size = len(SHARED) + len(OWN) * (len(methods) + 1)
    rows: list[Floats] = []
    targets: list[float] = []

    def add(columns: dict[int, float], mean: float, spread: float) -> None:
        row = np.zeros(size)
        for column, factor in columns.items():
            row[column] = factor / spread
        rows.append(row)
        targets.append(mean / spread)

    for column, (mean, spread) in enumerate(SHARED.values()):
        add({column: 1.0}, mean, spread)
    common = len(SHARED) + len(OWN) * len(methods)
    for part, (mean, spread) in enumerate(OWN.values()):
        add({common + part: 1.0}, mean, spread * (1 - _OWN_SHARE**2) ** 0.5)
        for place in range(len(methods)):
            column = len(SHARED) + len(OWN) * place + part
            add({column: 1.0, common + part: -1.0}, 0.0, spread * _OWN_SHARE)
    return np.array(rows), np.array(targets)
