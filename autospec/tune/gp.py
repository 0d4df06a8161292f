"""Bayesian optimisation over the enumerated candidates. The only file that knows skopt.

A Gaussian process models the log ratio to plain decoding; the candidate with the highest expected
improvement is tried next. ``Residual`` models what another model leaves over.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from skopt.acquisition import gaussian_ei
from skopt.learning import GaussianProcessRegressor
from skopt.learning.gaussian_process.kernels import ConstantKernel, Matern
from threadpoolctl import threadpool_limits

from autospec.config import SpecConfig
from autospec.tune.samplers import Proposal, encode
from autospec.tune.seen import Seen
from autospec.tune.shapes import method

__all__ = ["GPSampler", "Residual", "improvement", "unit_columns"]

#: Improvement below this (a log ratio, so about 1 %) is not worth a launch.
XI: Final = 0.01
#: Trials before the model is asked: so many a method, and at least so many in all.
INITIAL_PER_METHOD: Final = 2
INITIAL_LEAST: Final = 5
#: Candidates drawn for each space-filling step; the one farthest from all tried is taken.
DRAWN: Final = 32

#: Trials from which on the residual's scales are found, not assumed.
_ENOUGH: Final = 4
#: A cost model misses by no less than this, and by no more, as a log ratio.
_LEAST_SPREAD, _MOST_SPREAD = 0.02, 0.5
_LEAST_NOISE: Final = 0.005

Floats = NDArray[np.float64]


class GPSampler:
    """Space-filling start, then expected improvement; see ``Sampler`` for what it promises.

    What it asks depends only on the candidates, the seed, and the set of results told (not their
    order). A failure counts as the worst value seen: enough to keep away from it, without the
    cliff that a large penalty would put into the model.

    Args:
        candidates: what may be asked for.
        seed: of the space-filling draws and of the model's restarts.
    """

    def __init__(self, candidates: Sequence[SpecConfig], seed: int) -> None:
        self._candidates = sorted(set(candidates))
        self._index = {config: i for i, config in enumerate(self._candidates)}
        self._rows = unit_columns(encode(self._candidates))
        self._seed = seed
        self._open = set(range(len(self._candidates)))
        self._values: dict[int, float | None] = {}
        typical = _typical(self._candidates, self._rows)
        self._starters = [typical[i] for i in np.random.default_rng(seed).permutation(len(typical))]
        self._num_initial = max(INITIAL_LEAST, INITIAL_PER_METHOD * len(typical))

    def tell(self, config: SpecConfig, value: float | None, seen: Seen | None = None) -> None:  # noqa: ARG002  a part of the protocol
        """Report a result; see ``Sampler``."""
        index = self._index.get(config)
        if index is None:
            return
        self._open.discard(index)
        finite = value is not None and math.isfinite(value)
        self._values[index] = float(value) if finite and value is not None else None

    def ask(self) -> Proposal | None:
        """The next candidate with the reason for it, or None; see ``Sampler``."""
        if not self._open:
            return None
        # The matrices are tiny: more threads only wait for each other, long on a busy machine.
        with threadpool_limits(1):
            index, reason = self._choose()
        self._open.discard(index)
        return Proposal(self._candidates[index], reason)

    def _choose(self) -> tuple[int, str]:
        tried = {method(config) for config, i in self._index.items() if i not in self._open}
        for starter in self._starters:
            if method(self._candidates[starter]) not in tried:
                return starter, "a typical shape of its method"
        succeeded = [value for value in self._values.values() if value is not None]
        num_asked = len(self._candidates) - len(self._open)
        if num_asked < self._num_initial or len(succeeded) < 2:
            return self._farthest(), "far from all shapes tried"
        return self._most_promising(min(succeeded), max(succeeded))

    def _farthest(self) -> int:
        rng = np.random.default_rng([self._seed, len(self._open)])
        still_open = sorted(self._open)
        drawn = rng.choice(still_open, size=min(DRAWN, len(still_open)), replace=False)
        tried = [i for i in range(len(self._candidates)) if i not in self._open]
        distances = _distances(self._rows[drawn], self._rows[tried]).min(axis=1)
        return int(drawn[int(np.argmax(distances))])

    def _most_promising(self, worst: float, best: float) -> tuple[int, str]:
        told = sorted(self._values)
        values = [self._values[i] for i in told]
        losses = np.array([-(worst if value is None else value) for value in values])
        still_open = sorted(self._open)
        model = _fit(self._rows[told], losses, self._seed)
        gains = gaussian_ei(self._rows[still_open], model, y_opt=-best, xi=XI)
        index = still_open[int(np.argmax(gains))]
        predicted, spread = _predict(model, self._rows[index])
        return index, (
            f"expected improvement {100 * float(np.max(gains)):.2g} %: predicted "
            f"{math.exp(-predicted):.2f}x plain (within {100 * spread:.0f} %), "
            f"best so far {math.exp(best):.2f}x"
        )


class Residual:
    """A Gaussian process around zero: what a model of the values missed, near where it was seen.

    Args:
        rows: of the trials, columns within [0, 1], shape (n, columns).
        residuals: values less the model's, shape (n,).
        errors: standard deviation of each value's noise, shape (n,).
        seed: of the model.
    """

    def __init__(self, rows: Floats, residuals: Floats, errors: Floats, seed: int) -> None:
        spread = float(np.sqrt((residuals**2).mean()))
        amplitude = min(max(spread, _LEAST_SPREAD), _MOST_SPREAD)
        kernel = ConstantKernel(amplitude**2, (_LEAST_SPREAD**2, _MOST_SPREAD**2)) * Matern(
            length_scale=1.0, length_scale_bounds=(0.3, 3.0), nu=2.5
        )
        self._model = GaussianProcessRegressor(
            kernel=kernel,
            alpha=np.maximum(errors, _LEAST_NOISE) ** 2,
            optimizer="fmin_l_bfgs_b" if len(rows) >= _ENOUGH else None,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module=r"(sklearn|skopt)\.")
            self._model.fit(rows, residuals)

    def predict(self, rows: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation at each row."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=UserWarning, module=r"(sklearn|skopt)\.")
            means, spreads = self._model.predict(rows, return_std=True)
        return means, spreads


def improvement(mean: Floats, spread: Floats, best: float) -> Floats:
    """Expected improvement on the best, of a normal belief: ``s * (z * Phi(z) + phi(z))``."""
    spread = np.maximum(spread, 1e-9)
    z = (mean - best) / spread
    density = np.exp(-0.5 * np.minimum(z**2, 1400.0)) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in z])
    gains: Floats = np.maximum(spread * (z * below + density), 0.0)
    return gains


def _fit(rows: Floats, losses: Floats, seed: int) -> Any:
    columns = rows.shape[1]
    matern = Matern(length_scale=np.ones(columns), length_scale_bounds=(0.1, 10.0), nu=2.5)
    model = GaussianProcessRegressor(
        kernel=ConstantKernel(1.0, (0.01, 100.0)) * matern,
        noise="gaussian",
        normalize_y=True,
        n_restarts_optimizer=1,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # A length scale at its bound, or an early stop of its search, is usual with few trials.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"(sklearn|skopt)\.")
        return model.fit(rows, losses)


def _predict(model: Any, row: Floats) -> tuple[float, float]:
    with warnings.catch_warnings():
        # A variance that rounds below zero is set to zero, with a warning.
        warnings.filterwarnings("ignore", category=UserWarning, module=r"skopt\.")
        means, spreads = model.predict(row[None, :], return_std=True)
    return float(means[0]), float(spreads[0])


def _typical(candidates: Sequence[SpecConfig], rows: Floats) -> list[int]:
    """Index of the most central candidate of each method."""
    groups: dict[str, list[int]] = {}
    for i, config in enumerate(candidates):
        groups.setdefault(method(config), []).append(i)
    return [
        group[int(np.argmin(_distances(rows[group], rows[group]).sum(axis=1)))]
        for group in groups.values()
    ]


def _distances(left: Floats, right: Floats) -> Floats:
    """Euclidean distances, shape (left rows, right rows)."""
    squares: Floats = ((left[:, None, :] - right[None, :, :]) ** 2).sum(axis=2)
    return np.sqrt(squares)


def unit_columns(rows: Floats) -> Floats:
    """Scale each column to [0, 1]; a constant column becomes 0."""
    if not len(rows):
        return rows
    low: Floats = rows.min(axis=0)
    span: Floats = rows.max(axis=0) - low
    scaled: Floats = (rows - low) / np.where(span > 0, span, 1.0)
    return scaled
