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

from autospec.tune.normal import root_of
from autospec.tune.shapes import Shape
from autospec.tune.stepparts import OWN, SHARED, Timed, design_of, prior_of, with_knee

__all__ = ["StepTimes", "fit_step_times"]

Floats = NDArray[np.float64]

#: Least floor of a step, in the same unit: without plain decoding among the trials, a fit may leave
#: nothing for it.
_LEAST_FLOOR: Final = 0.05
#: Tokens a step at which arithmetic may take over.
KNEES: Final[tuple[float, ...]] = (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
#: Chance beforehand that there is no knee among the tokens that any shape verifies.
_NO_KNEE: Final = 0.5
#: A knee of less chance is left out.
_SLIGHT: Final = 0.003
#: Relative errors of a step time: as assumed at first, and never less or more than found.
_ERROR, _LEAST_ERROR, _MOST_ERROR = 0.03, 0.01, 0.3


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
        return root_of(self.covariance)


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

    def times(self, shapes: Sequence[Shape], batch_size: float) -> Floats:
        """Step times at one load.

        Args:
            shapes: of methods that the fit knew; shape (n,).
            batch_size: running requests.

        Returns:
            The mean over all places of the knee, shape (n,).
        """
        return self.samples(shapes, batch_size, np.zeros((0, self.num_coefficients)))[0]

    def samples(
        self, shapes: Sequence[Shape], batch_size: float, draws: Floats
    ) -> tuple[Floats, Floats]:
        """Step times at one load, and samples of what is not known of them.

        Args:
            shapes: as for ``times``.
            batch_size: running requests.
            draws: standard normal, shape (s, coefficients), for as many samples.

        Returns:
            The mean, shape (n,), and the samples, shape (s, n).
        """
        design = design_of(shapes, np.full(len(shapes), batch_size), self.methods)
        work = np.array([batch_size * shape.tokens for shape in shapes])
        mean, sampled = np.zeros(len(shapes)), np.zeros((len(draws), len(shapes)))
        # Each knee has as many samples as it has chance.
        places = (np.arange(len(draws)) + 0.5) / max(1, len(draws))
        owners = np.searchsorted(np.cumsum([fit.chance for fit in self.fits])[:-1], places)
        for place, fit in enumerate(self.fits):
            placed = with_knee(design, work, fit.knee)
            mean += fit.chance * (placed @ fit.coefficients)
            mine = owners == place
            if mine.any():
                # A part below nothing is nothing, and a step below half the mean is no step.
                parts = np.maximum(fit.coefficients[None, :] + draws[mine] @ fit.root.T, 0.0)
                sampled[mine] = parts @ placed.T
        return mean, np.maximum(sampled, 0.5 * mean[None, :])

    def time(self, shape: Shape, batch_size: float) -> tuple[float, float]:
        """Step time of one shape at one load, and its standard error."""
        design = design_of([shape], np.array([batch_size]), self.methods)
        work = np.array([batch_size * shape.tokens])
        mean = square = 0.0
        for fit in self.fits:
            row = with_knee(design, work, fit.knee)[0]
            value = float(row @ fit.coefficients)
            mean += fit.chance * value
            square += fit.chance * (value**2 + float(row @ fit.covariance @ row))
        spread = max(0.0, square - mean**2)
        return mean, float(np.hypot(np.sqrt(spread), self.fit_error * mean))


@dataclass(frozen=True, slots=True)
class _Solved:
    """The best parts for a knee at one place.

    Attributes:
        loss: twice the negative log chance of what was measured, the parts integrated out
            (Laplace): a knee that could have explained much else as well is less likely than one
            that explains just this.
        coefficients: of the parts, those common to all methods last.
        covariance: of the coefficients.
        misses: relative errors of what was measured.
        spent: degrees of freedom that the measured rows used: the trace of their hat matrix.
    """

    loss: float
    coefficients: Floats
    covariance: Floats
    misses: Floats
    spent: float

    @property
    def error(self) -> float:
        """Relative error that the misses speak for."""
        free = max(1.0, len(self.misses) - self.spent)
        error = np.sqrt((self.misses**2).sum() / free)
        return float(np.clip(error, _LEAST_ERROR, _MOST_ERROR))


class _Problem:
    """What was measured and what is believed, for a knee anywhere.

    Args:
        seen: step times, in any unit.
        methods: that have parts of their own.
        unit: in which the parts are found.
    """

    def __init__(self, seen: Sequence[Timed], methods: Sequence[str], unit: float) -> None:
        shapes = [item.shape for item in seen]
        batches = np.array([item.batch_size for item in seen])
        design = design_of(shapes, batches, methods)
        self._design = np.hstack([design, np.zeros((len(seen), len(OWN)))])
        self._work = np.array([item.batch_size * item.shape.tokens for item in seen])
        self._times = np.array([item.step_time for item in seen]) / unit
        self._errors = np.array([item.error for item in seen])
        self._prior, self._target = prior_of(methods)

    def solve(self, knee: float, error: float) -> _Solved:
        """The parts, with this relative error of a step time."""
        placed = with_knee(self._design, self._work, knee)
        weights = 1.0 / (np.hypot(error, self._errors) * self._times)
        weighed = placed * weights[:, None]
        rows = np.vstack([weighed, self._prior])
        # The floor's first part is given, what it has beyond is found.
        aims = np.concatenate([self._times * weights, self._target]) - _LEAST_FLOOR * rows[:, 0]
        found, loss = _nnls(rows, aims)
        found[0] += _LEAST_FLOOR
        precision = rows.T @ rows
        covariance: Floats = np.asarray(np.linalg.inv(precision), dtype=np.float64)
        return _Solved(
            loss**2 + float(np.linalg.slogdet(precision)[1]),
            found,
            covariance,
            (placed @ found) / self._times - 1.0,
            float(np.einsum("ij,jk,ik->", weighed, covariance, weighed)),
        )

    def all_knees(self, error: float) -> tuple[dict[float, _Solved], dict[float, float]]:
        """Every place of the knee, and their chances."""
        before = {math.inf: _NO_KNEE} | dict.fromkeys(KNEES, (1 - _NO_KNEE) / len(KNEES))
        solved = {knee: self.solve(knee, error) for knee in before}
        losses = {knee: solved[knee].loss - 2 * math.log(before[knee]) for knee in before}
        least = min(losses.values())
        chances = {knee: math.exp((least - losses[knee]) / 2) for knee in before}
        total = sum(chances.values())
        return solved, {knee: chance / total for knee, chance in chances.items()}


def fit_step_times(seen: Sequence[Timed], methods: Sequence[str]) -> StepTimes:
    """Find the parts of a step.

    Args:
        seen: step times; at least one.
        methods: that will be asked about; plain decoding's among them does no harm.
    """
    names, unit = tuple(dict.fromkeys(methods)), _unit(seen)
    problem = _Problem(seen, names, unit)
    solved, chances = problem.all_knees(_ERROR)
    likeliest = max(chances, key=lambda knee: chances[knee])
    error = problem.solve(likeliest, solved[likeliest].error).error
    solved, chances = problem.all_knees(error)
    kept = [knee for knee in solved if chances[knee] > _SLIGHT]
    total = sum(chances[knee] for knee in kept)
    size = len(SHARED) + len(OWN) * len(names)
    fits = tuple(
        _Fit(
            knee,
            chances[knee] / total,
            solved[knee].coefficients[:size] * unit,
            solved[knee].covariance[:size, :size] * unit**2,
        )
        for knee in kept
    )
    misses = solved[max(kept, key=lambda knee: chances[knee])].misses
    return StepTimes(names, fits, float(np.sqrt((misses**2).mean())))


def _unit(seen: Sequence[Timed]) -> float:
    """A step of plain decoding with the fewest requests, or a guess at it."""
    plain = [item for item in seen if item.shape.depth == 0]
    if plain:
        return min(plain, key=lambda item: item.batch_size).step_time
    least = min(seen, key=lambda item: item.batch_size * item.shape.tokens)
    guess = 1.0 + least.shape.passes * OWN["draft"][0] + OWN["fixed"][0]
    return least.step_time / guess


def _nnls(rows: Floats, targets: Floats) -> tuple[Floats, float]:
    from scipy.optimize import nnls  # noqa: PLC0415 - slow to import, and only a search needs it

    found, loss = nnls(rows, targets)
    return found, float(loss)
