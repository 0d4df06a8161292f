"""How long a decode step takes, for shapes and loads not yet tried. Pure.

A step is a sum of parts, none negative::

    floor + request * b + token * b*v + beyond * max(0, b*v - knee)      of the target
    + fixed[m] + draft[m] * k + branch[m] * k*b*w + check[m] * b*(v - 1)    of the method m

with b requests, v tokens verified a request, k passes of the draft over w branches. Up to the knee
a step waits for memory, beyond it for arithmetic: the roofline. The parts are found by non-negative
least squares on relative errors (Lawson and Hanson 1974); the knee is the best of a few. What is
believed beforehand stands as rows beside the measured ones, so that the first trials already
predict, with an error that says how little they rest on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.tune.shapes import Shape

__all__ = ["StepTimes", "Timed", "fit_step_times"]

Floats = NDArray[np.float64]

#: Mean and standard deviation of each part before anything is measured, in shares of the time of
#: a step of plain decoding alone.
SHARED: Final = {
    "floor": (0.9, 0.5),
    "request": (0.01, 0.05),
    "token": (0.01, 0.05),
    "beyond": (0.0, 0.05),
}
OWN: Final = {
    "fixed": (0.3, 0.8),
    "draft": (0.06, 0.1),
    "branch": (0.002, 0.01),
    "check": (0.0, 0.02),
}
#: Least floor of a step, in the same unit: without plain decoding among the trials, a fit may leave
#: nothing for it.
_LEAST_FLOOR: Final = 0.05
#: How much of a method's uncertainty is its own, the rest being common to all methods here.
_OWN_SHARE: Final = 0.97
#: Tokens a step at which arithmetic may take over.
KNEES: Final = (4, 8, 16, 32, 64, 128, 256, 512)
#: Relative errors of a step time: as assumed at first, and never less or more than found.
_ERROR, _LEAST_ERROR, _MOST_ERROR = 0.03, 0.01, 0.3
#: Rows from which on a knee can be told from noise.
_KNEE_ROWS: Final = 6


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


@dataclass(frozen=True)
class StepTimes:
    """Step times of any shape at any load.

    Attributes:
        methods: that have parts of their own, in the order of the coefficients.
        knee: tokens a step from which on arithmetic limits; None where no knee shows.
        coefficients: of the parts, none negative.
        covariance: of the coefficients.
        fit_error: relative error of the fit, root mean square over what it was fitted to.
    """

    methods: tuple[str, ...]
    knee: float | None
    coefficients: Floats
    covariance: Floats
    fit_error: float

    @cached_property
    def _root(self) -> Floats:
        values, vectors = np.linalg.eigh(self.covariance)
        root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
        return root

    @property
    def num_coefficients(self) -> int:
        """Length of a draw."""
        return len(self.coefficients)

    def times(
        self, shapes: Sequence[Shape], batch_size: float, draws: Floats | None = None
    ) -> Floats:
        """Step times at one load.

        Args:
            shapes: of methods that the fit knew; shape (n,).
            batch_size: running requests.
            draws: standard normal, shape (s, coefficients), for as many samples; none for the fit.

        Returns:
            Shape (s, n), or (n,) without draws.
        """
        design = _design(shapes, np.full(len(shapes), batch_size), self.methods, self.knee)
        if draws is None:
            fitted: Floats = design @ self.coefficients
            return fitted
        # A part below nothing is nothing, and a step below half the fit is no step.
        sampled = np.maximum(self.coefficients[None, :] + draws @ self._root.T, 0.0)
        fitted = design @ self.coefficients
        bounded: Floats = np.maximum(sampled @ design.T, 0.5 * fitted[None, :])
        return bounded

    def time(self, shape: Shape, batch_size: float) -> tuple[float, float]:
        """Step time of one shape at one load, and its standard error."""
        design = _design([shape], np.array([batch_size]), self.methods, self.knee)[0]
        value = float(design @ self.coefficients)
        spread = float(design @ self.covariance @ design)
        return value, float(np.hypot(np.sqrt(max(0.0, spread)), self.fit_error * value))


def fit_step_times(seen: Sequence[Timed], methods: Sequence[str]) -> StepTimes:
    """Find the parts of a step.

    Args:
        seen: step times; at least one.
        methods: that will be asked about; plain decoding's among them does no harm.
    """
    names = tuple(dict.fromkeys(methods))
    unit = _unit(seen)
    times = np.array([item.step_time for item in seen]) / unit
    errors = np.array([item.error for item in seen])
    shapes = [item.shape for item in seen]
    batches = np.array([item.batch_size for item in seen])
    prior, target = _prior(names)

    def solve(knee: float | None, error: float) -> tuple[float, Floats, Floats, Floats]:
        design = _design(shapes, batches, names, knee)
        padded = np.hstack([design, np.zeros((len(seen), len(OWN)))])
        weights = 1.0 / (np.hypot(error, errors) * times)
        rows = np.vstack([padded * weights[:, None], prior])
        # The floor's first part is given, what it has beyond is found.
        aims = np.concatenate([times * weights, target]) - _LEAST_FLOOR * rows[:, 0]
        found, loss = _nnls(rows, aims)
        found[0] += _LEAST_FLOOR
        return loss**2, found, rows, (padded @ found) / times - 1.0

    knees: list[float | None] = [None]
    if len(seen) >= _KNEE_ROWS:
        work = [item.batch_size * item.shape.tokens for item in seen]
        knees += [float(knee) for knee in KNEES if min(work) <= knee < max(work)]
    error, best = _ERROR, solve(None, _ERROR)
    for _ in range(2):
        # A knee is one more parameter: it has to earn its place.
        losses = {knee: solve(knee, error)[0] + (2.0 if knee else 0.0) for knee in knees}
        knee = min(losses, key=lambda k: losses[k])
        best = solve(knee, error)
        free = max(1.0, len(seen) - _spent(best[2], len(seen)))
        error = float(np.clip(np.sqrt((best[3] ** 2).sum() / free), _LEAST_ERROR, _MOST_ERROR))
    _, found, rows, residuals = best
    size = len(found) - len(OWN)
    covariance: Floats = np.asarray(np.linalg.inv(rows.T @ rows)[:size, :size], dtype=np.float64)
    return StepTimes(
        names,
        knee,
        found[:size] * unit,
        covariance * unit**2,
        float(np.sqrt((residuals**2).mean())),
    )


def _spent(rows: Floats, measured: int) -> float:
    """Degrees of freedom that the measured rows used: the trace of their hat matrix."""
    inverse = np.linalg.inv(rows.T @ rows)
    top = rows[:measured]
    return float(np.einsum("ij,jk,ik->", top, inverse, top))


def _unit(seen: Sequence[Timed]) -> float:
    """A step of plain decoding with the fewest requests, or a guess at it."""
    plain = [item for item in seen if item.shape.depth == 0]
    if plain:
        return min(plain, key=lambda item: item.batch_size).step_time
    least = min(seen, key=lambda item: item.batch_size * item.shape.tokens)
    guess = 1.0 + least.shape.passes * OWN["draft"][0] + OWN["fixed"][0]
    return least.step_time / guess


def _design(
    shapes: Sequence[Shape], batches: Floats, methods: Sequence[str], knee: float | None
) -> Floats:
    """One row a step time, one column a part: the target's, then each method's."""
    b = np.asarray(batches, dtype=np.float64)
    v = np.array([shape.tokens for shape in shapes], dtype=np.float64)
    k = np.array([shape.passes for shape in shapes], dtype=np.float64)
    w = np.array([shape.breadth for shape in shapes], dtype=np.float64)
    drafts = np.array([shape.depth > 0 for shape in shapes], dtype=np.float64)
    beyond = np.maximum(0.0, b * v - knee) if knee else np.zeros(len(shapes))
    target = np.stack([np.ones(len(shapes)), b, b * v, beyond], axis=1)
    own = np.stack([drafts, k, k * b * w, b * (v - 1.0)], axis=1)
    places = {name: len(SHARED) + len(OWN) * i for i, name in enumerate(methods)}
    starts = np.array([places[shape.method] for shape in shapes], dtype=np.int64)
    design = np.zeros((len(shapes), len(SHARED) + len(OWN) * len(methods)))
    design[:, : len(SHARED)] = target
    columns = starts[:, None] + np.arange(len(OWN))[None, :]
    design[np.arange(len(shapes))[:, None], columns] = own
    return design


def _prior(methods: Sequence[str]) -> tuple[Floats, Floats]:
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


def _nnls(rows: Floats, targets: Floats) -> tuple[Floats, float]:
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and only a search needs it

    found, loss = nnls(rows, targets)
    return found, float(loss)
