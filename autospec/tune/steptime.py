"""How long a decode step takes, for shapes and loads not yet tried. Pure.

A step is a sum of parts, none negative::

    floor + request * b + token * b*v + beyond * max(0, b*v/knee - 1)    of the target
    + fixed[m] + draft[m] * k + branch[m] * k*b*w + check[m] * b*(v - 1)    of the method m

with b requests, v tokens verified a request, k passes of the draft over w branches. Up to the knee
a step waits for memory, beyond it for arithmetic: the roofline. The parts are found by non-negative
least squares on relative errors (Lawson and Hanson 1974). What is believed beforehand stands as
rows beside the measured ones, so that the first trials already predict, with an error that says how
little they rest on. Where the knee lies is hardly ever sure, so that all places are kept, each with
its chance: a step time between two measured ones may lie below their chord, as that of a convex
law does, and one beyond them above their line.
"""

from __future__ import annotations

import math
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
    # What the tokens up to the knee cost is the floor, so that as many more cost about as much.
    "beyond": (0.9, 0.5),
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
KNEES: Final = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
#: Chance beforehand that there is no knee among the tokens that any shape verifies.
_NO_KNEE: Final = 0.5
#: A knee of less chance is left out.
_SLIGHT: Final = 0.003
#: Relative errors of a step time: as assumed at first, and never less or more than found.
_ERROR, _LEAST_ERROR, _MOST_ERROR = 0.03, 0.01, 0.3


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
class _Fit:
    """The parts that one place of the knee gives.

    Attributes:
        knee: tokens a step from which on arithmetic limits; infinite where nothing does.
        chance: that the knee is there.
        coefficients: of the parts, none negative.
        covariance: of the coefficients.
    """

    knee: float
    chance: float
    coefficients: Floats
    covariance: Floats

    @cached_property
    def root(self) -> Floats:
        """What turns standard normal draws into the coefficients' errors."""
        values, vectors = np.linalg.eigh(self.covariance)
        root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
        return root


@dataclass(frozen=True)
class StepTimes:
    """Step times of any shape at any load.

    Attributes:
        methods: that have parts of their own, in the order of the coefficients.
        fits: by place of the knee; their chances sum to 1.
        fit_error: relative error of the likeliest, root mean square over what it was fitted to.
    """

    methods: tuple[str, ...]
    fits: tuple[_Fit, ...]
    fit_error: float

    @property
    def num_coefficients(self) -> int:
        """Length of a draw."""
        return len(self.fits[0].coefficients)

    @property
    def knee(self) -> float | None:
        """The likeliest knee, in tokens a step; None where none shows."""
        likeliest = max(self.fits, key=lambda fit: fit.chance).knee
        return likeliest if math.isfinite(likeliest) else None

    def times(
        self, shapes: Sequence[Shape], batch_size: float, draws: Floats | None = None
    ) -> Floats:
        """Step times at one load.

        Args:
            shapes: of methods that the fit knew; shape (n,).
            batch_size: running requests.
            draws: standard normal, shape (s, coefficients), for as many samples; none for the mean.

        Returns:
            Shape (s, n), or (n,) without draws.
        """
        design = _design(shapes, np.full(len(shapes), batch_size), self.methods)
        work = np.array([batch_size * shape.tokens for shape in shapes])
        mean = np.zeros(len(shapes))
        for fit in self.fits:
            mean += fit.chance * (_with_knee(design, work, fit.knee) @ fit.coefficients)
        if draws is None:
            return mean
        # Each knee has as many samples as it has chance.
        places = (np.arange(len(draws)) + 0.5) / len(draws)
        owners = np.searchsorted(np.cumsum([fit.chance for fit in self.fits]), places)
        sampled = np.zeros((len(draws), len(shapes)))
        for place in np.unique(np.minimum(owners, len(self.fits) - 1)):
            fit, mine = self.fits[place], owners == place
            # A part below nothing is nothing, and a step below half the mean is no step.
            parts = np.maximum(fit.coefficients[None, :] + draws[mine] @ fit.root.T, 0.0)
            sampled[mine] = parts @ _with_knee(design, work, fit.knee).T
        bounded: Floats = np.maximum(sampled, 0.5 * mean[None, :])
        return bounded

    def time(self, shape: Shape, batch_size: float) -> tuple[float, float]:
        """Step time of one shape at one load, and its standard error."""
        design = _design([shape], np.array([batch_size]), self.methods)
        work = np.array([batch_size * shape.tokens])
        mean = square = 0.0
        for fit in self.fits:
            row = _with_knee(design, work, fit.knee)[0]
            value = float(row @ fit.coefficients)
            mean += fit.chance * value
            square += fit.chance * (value**2 + float(row @ fit.covariance @ row))
        spread = max(0.0, square - mean**2)
        return mean, float(np.hypot(np.sqrt(spread), self.fit_error * mean))


class _Problem:
    """What was measured and what is believed, for a knee anywhere."""

    def __init__(self, seen: Sequence[Timed], methods: Sequence[str]) -> None:
        self.unit = _unit(seen)
        shapes = [item.shape for item in seen]
        batches = np.array([item.batch_size for item in seen])
        self._design = _design(shapes, batches, methods)
        self._work = np.array([item.batch_size * item.shape.tokens for item in seen])
        self._times = np.array([item.step_time for item in seen]) / self.unit
        self._errors = np.array([item.error for item in seen])
        self._methods = methods

    def solve(self, knee: float, error: float) -> tuple[float, Floats, Floats, Floats]:
        """Twice the negative log chance of the knee, the parts, their covariance, the misses.

        The chance is that of the data with the parts integrated out (Laplace): a knee that would
        have explained much else as well is less likely than one that explains just this.
        """
        measured = len(self._times)
        padded = _with_knee(self._design, self._work, knee)
        padded = np.hstack([padded, np.zeros((measured, len(OWN)))])
        weights = 1.0 / (np.hypot(error, self._errors) * self._times)
        prior, target = _prior(self._methods)
        rows = np.vstack([padded * weights[:, None], prior])
        # The floor's first part is given, what it has beyond is found.
        aims = np.concatenate([self._times * weights, target]) - _LEAST_FLOOR * rows[:, 0]
        found, loss = _nnls(rows, aims)
        found[0] += _LEAST_FLOOR
        precision = rows.T @ rows
        evidence = loss**2 + float(np.linalg.slogdet(precision)[1])
        covariance: Floats = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return evidence, found, covariance, (padded @ found) / self._times - 1.0

    def error(self, knee: float, error: float) -> float:
        """Relative error that the misses of one knee speak for."""
        _, _, covariance, misses = self.solve(knee, error)
        weights = 1.0 / (np.hypot(error, self._errors) * self._times)
        rows = _with_knee(self._design, self._work, knee) * weights[:, None]
        size = rows.shape[1]
        # The measured rows use as many degrees of freedom as their hat matrix has trace.
        spent = float(np.einsum("ij,jk,ik->", rows, covariance[:size, :size], rows))
        free = max(1.0, len(misses) - spent)
        return float(np.clip(np.sqrt((misses**2).sum() / free), _LEAST_ERROR, _MOST_ERROR))


def fit_step_times(seen: Sequence[Timed], methods: Sequence[str]) -> StepTimes:
    """Find the parts of a step.

    Args:
        seen: step times; at least one.
        methods: that will be asked about; plain decoding's among them does no harm.
    """
    names = tuple(dict.fromkeys(methods))
    problem = _Problem(seen, names)
    before = {math.inf: _NO_KNEE} | {float(knee): (1 - _NO_KNEE) / len(KNEES) for knee in KNEES}

    def weighed(error: float) -> tuple[dict[float, float], float]:
        solved.update({knee: problem.solve(knee, error) for knee in before})
        losses = {knee: solved[knee][0] - 2 * math.log(before[knee]) for knee in before}
        return losses, min(losses, key=lambda knee: losses[knee])

    solved: dict[float, tuple[float, Floats, Floats, Floats]] = {}
    _, likeliest = weighed(_ERROR)
    error = problem.error(likeliest, problem.error(likeliest, _ERROR))
    losses, likeliest = weighed(error)
    chances = {knee: math.exp((losses[likeliest] - losses[knee]) / 2) for knee in before}
    kept = [knee for knee in before if chances[knee] > _SLIGHT]
    total = sum(chances[knee] for knee in kept)
    size = len(SHARED) + len(OWN) * len(names)
    fits = []
    for knee in kept:
        _, found, covariance, _ = solved[knee]
        parts, errors = found[:size] * problem.unit, covariance[:size, :size] * problem.unit**2
        fits.append(_Fit(knee, chances[knee] / total, parts, errors))
    misses = solved[likeliest][3]
    return StepTimes(names, tuple(fits), float(np.sqrt((misses**2).mean())))


def _unit(seen: Sequence[Timed]) -> float:
    """A step of plain decoding with the fewest requests, or a guess at it."""
    plain = [item for item in seen if item.shape.depth == 0]
    if plain:
        return min(plain, key=lambda item: item.batch_size).step_time
    least = min(seen, key=lambda item: item.batch_size * item.shape.tokens)
    guess = 1.0 + least.shape.passes * OWN["draft"][0] + OWN["fixed"][0]
    return least.step_time / guess


def _design(shapes: Sequence[Shape], batches: Floats, methods: Sequence[str]) -> Floats:
    """One row a step time, one column a part: the target's, then each method's.

    The column of what lies beyond the knee is left at 0; see ``_with_knee``.
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


def _with_knee(design: Floats, work: Floats, knee: float) -> Floats:
    """The same with the knee at a place.

    Args:
        design: of ``_design``.
        work: tokens a step, shape (n,).
        knee: tokens a step, or infinite.
    """
    placed = design.copy()
    placed[:, list(SHARED).index("beyond")] = np.maximum(0.0, work / knee - 1.0)
    return placed


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
