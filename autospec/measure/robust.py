"""A mean that one burst cannot move far, and how far chance alone moves it. Pure.

Reference distributions are simulated, with a fixed seed, from normal noise. The statistics here do
not change with the scale or the place of the figures, so one simulation serves all data with as
many figures: a studentized parametric bootstrap (Davison and Hinkley 1997, sections 2.4 and 5.2)
whose resamples need no data. Resampling three to eight pairs themselves, as the percentile
bootstrap does, misses the truth more often than it says (``benchmarks/verdicts.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

__all__ = [
    "FEWEST",
    "boundary",
    "critical",
    "location",
    "outlier_limit",
    "scaled_distances",
    "student",
]

#: Figures from which a burst can be told from noise. With four, Huber's two equations have no
#: solution that leaves one figure out on its own, so fewer than five get the plain mean.
FEWEST = 5

#: Huber's (1964) own choice: on normal noise the estimate loses 4 % of the mean's efficiency.
_REACH = 1.5

#: What a squared normal deviate is on average once it is cut off at ``_REACH``.
_CUT_VARIANCE = 0.7784655

#: Median absolute deviation to standard deviation, for normal noise.
_NORMAL = 1.4826

#: The iteration starts from the median absolute deviation, and from no less than this share of the
#: standard deviation: where most figures are equal, the others still count.
_LEAST_SCALE = 0.05

#: Steps of the iteration. The reference distribution comes from as many, so that nothing rests on
#: whether they are enough to converge.
_STEPS = 12

#: Simulated comparisons: a level of 0.05 is met to within 0.1 percentage points.
_DRAWS = 40_000
_SEED = 1964


def location(figures: Sequence[float]) -> tuple[float, float]:
    """Robust mean of at least two figures and its standard error.

    Huber's Proposal 2 (Annals of Mathematical Statistics 35, 1964): figures further than 1.5
    standard deviations from the mean count as if they lay there, the mean and the deviation being
    those of the figures so moved. Every figure counts and none by more than its share. The error
    is the one of the asymptotic variance, ``E psi^2 / (E psi')^2 / n``. Fewer than ``FEWEST``
    figures get the mean and its standard error.
    """
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    centre, error = _locations(np.array([figures], dtype=float))
    return float(centre[0]), float(error[0])


def _locations(rows: Array) -> tuple[Array, Array]:
    """``location`` of each row, of a matrix with one series a row."""
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    n = rows.shape[1]
    if n < FEWEST:
        return rows.mean(axis=1), rows.std(axis=1, ddof=1) / np.sqrt(n)
    centre = np.median(rows, axis=1, keepdims=True)
    scale = _NORMAL * np.median(np.abs(rows - centre), axis=1, keepdims=True)
    scale = np.maximum(scale, _LEAST_SCALE * rows.std(axis=1, ddof=1, keepdims=True))
    squares = np.zeros_like(scale)
    for _ in range(_STEPS):
        moved = np.clip(rows, centre - _REACH * scale, centre + _REACH * scale)
        centre = moved.mean(axis=1, keepdims=True)
        squares = ((moved - centre) ** 2).sum(axis=1, keepdims=True) / (n - 1)
        scale = np.sqrt(squares / _CUT_VARIANCE)
    unmoved = (np.abs(rows - centre) <= _REACH * scale).mean(axis=1)
    return centre[:, 0], np.sqrt(squares[:, 0] / n) / np.maximum(unmoved, 1 / n)


def student(freedom: int, level: float) -> float:
    """Standard errors that Student's t exceeds, either way, with probability ``level``."""
    from scipy.special import stdtrit  # noqa: PLC0415 - slow to import and rarely needed

    return float(stdtrit(freedom, 1 - level / 2))


def critical(n: int, level: float) -> float:
    """Standard errors by which chance moves the mean of ``n`` figures with probability ``level``.

    Either way, in normal noise; seldomer in noise with heavier tails.
    """
    if n < FEWEST:
        return student(n - 1, level)
    return _upper(_deviations(n), level)


@functools.lru_cache
def boundary(least: int, most: int, level: float) -> tuple[float, ...]:
    """Standard errors by which chance moves the mean at any of several looks.

    The looks are after ``least``, ``least + 1``, ... ``most`` figures of one series. The mean
    passes the boundary at any of them with probability ``level`` in all. Each look spends of it in
    inverse proportion to its figures, as an early verdict saves the most passes; how much that is
    follows from the joint distribution of all looks, by simulation.

    Returns:
        one critical value a look.
    """
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    series = np.random.default_rng(_SEED).standard_normal((_DRAWS, most))
    sizes = np.arange(least, most + 1)
    passed = [_studentized(series[:, :n]) for n in sizes]
    chances = [1 - (np.argsort(np.argsort(looks)) + 0.5) / _DRAWS for looks in passed]
    spending = np.min([chance * n for chance, n in zip(chances, sizes, strict=True)], axis=0)
    unit = float(np.quantile(spending, level))
    return tuple(_upper(np.sort(t), unit / n) for t, n in zip(passed, sizes, strict=True))


def scaled_distances(figures: Sequence[float]) -> list[float]:
    """Distance of each figure from the median in units of what makes up for a standard deviation.

    That is the median absolute deviation times 1.4826. Where it is 0, because more than half of
    the figures are equal, every other figure is infinitely far.
    """
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    return [float(distance) for distance in _scaled_distances(np.array(figures, dtype=float))]


@functools.lru_cache
def outlier_limit(n: int) -> float:
    """Scaled distance that the furthest of ``n`` figures passes in 5 % of normal series."""
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    rows = np.random.default_rng(_SEED).standard_normal((_DRAWS // 2, n))
    return float(np.quantile(_scaled_distances(rows).max(axis=1), 0.95))


@functools.lru_cache
def _deviations(n: int) -> Array:
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    rows = np.random.default_rng(_SEED + n).standard_normal((_DRAWS, n))
    return np.sort(_studentized(rows))


def _scaled_distances(figures: Array) -> Array:
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    distances = np.abs(figures - np.median(figures, axis=-1, keepdims=True))
    scale = _NORMAL * np.median(distances, axis=-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(distances > 0, distances / scale, 0.0)


def _studentized(rows: Array) -> Array:
    centre, error = _locations(rows)
    found: Array = abs(centre) / error
    return found


def _upper(ordered: Array, level: float) -> float:
    import numpy as np  # noqa: PLC0415 - the command line starts without it

    return float(np.quantile(ordered, 1 - level))
