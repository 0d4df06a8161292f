"""What is expected of every candidate: the cost model, and what it missed so far. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.config import PLAIN, SpecConfig
from autospec.tune.costmodel import Expected, fit_cost_model
from autospec.tune.gp import Residual, unit_columns
from autospec.tune.samplers import encode
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.shapes import shape_of

__all__ = ["Forecast", "Outlook", "Told", "seen_alone"]

Floats = NDArray[np.float64]

#: How far the cost model may be off for a method of which nothing was tried, as a log ratio: what
#: it learned is of other methods' costs.
_UNTRIED: Final = 0.3


def seen_alone(value: float) -> Seen:
    """What a value told without anything beside it shows: one load, and its throughput.

    Args:
        value: log throughput.
    """
    return Seen((LoadSeen(1, math.exp(value)),))


#: Plain decoding's own where it was not told.
_UNIT: Final = seen_alone(0.0)


@dataclass(frozen=True, slots=True)
class Told:
    """One result.

    Attributes:
        value: the objective; None where it could not run.
        seen: what it showed beside it.
    """

    value: float | None
    seen: Seen


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of every candidate, item *i* of each array being candidate *i*'s.

    Attributes:
        plain: the value of plain decoding: its own, or what the others say, or 0.
        expected: by the cost model alone.
        mean: expected value, with what the cost model missed nearby.
        spread: its standard deviation.
    """

    plain: float
    expected: Expected
    mean: Floats
    spread: Floats

    def chance_of_plain(self, i: int) -> float:
        """How likely plain decoding, not told, is better than candidate *i*, which was."""
        ahead = float(self.expected.log_ratio[i]) / max(1e-9, float(self.expected.spread[i]))
        return 0.5 * math.erfc(ahead / math.sqrt(2))


class Outlook:
    """Fits what was told to the cost model, and a Gaussian process to what that missed.

    Args:
        candidates: that are asked about.
        seed: of the Gaussian process.
    """

    def __init__(self, candidates: Sequence[SpecConfig], seed: int) -> None:
        self.shapes = [shape_of(config) for config in candidates]
        #: Columns within [0, 1], shape (candidates, columns).
        self.rows = unit_columns(encode(candidates))
        self._with_plain = PLAIN in candidates
        self._seed = seed

    def forecast(self, told: Mapping[int, Told], plain: Told | None) -> Forecast:
        """Learn from results.

        Args:
            told: candidate -> result, each with a value.
            plain: plain decoding's, if it was told.
        """
        trials = [(self.shapes[i], item.seen) for i, item in told.items() if item.seen.loads]
        if not self._with_plain or not trials:
            shown = plain.seen if plain is not None and plain.seen.loads else _UNIT
            trials.append((shape_of(PLAIN), shown))
        expected = fit_cost_model(trials, self.shapes).expect(self.shapes)
        base = self._plain_value(told, plain, expected)
        mean, spread = expected.log_ratio + base, np.full(len(self.shapes), _UNTRIED)
        if told:
            rows = list(told)
            values = np.array([told[i].value for i in rows])
            errors = np.array([told[i].seen.error for i in rows])
            residual = Residual(self.rows[rows], values - mean[rows], errors, self._seed)
            missed, spread = residual.predict(self.rows)
            mean = mean + missed
            spread = np.where(self.untried(told), np.maximum(spread, _UNTRIED), spread)
        return Forecast(base, expected, mean, np.hypot(spread, expected.spread))

    def with_pending(
        self, told: Mapping[int, Told], plain: Told | None, pending: Collection[int]
    ) -> Forecast:
        """Learn from results; what is being tried is taken to come out as they let expect."""
        forecast = self.forecast(told, plain)
        if not pending:
            return forecast
        known = [item for item in (plain, *told.values()) if item is not None]
        basis = next((item for item in known if item.seen.loads), Told(forecast.plain, _UNIT))
        guessed = {i: _as_expected(i, forecast, basis) for i in sorted(pending)}
        return self.forecast({**told, **guessed}, plain)

    def untried(self, told: Collection[int]) -> NDArray[np.bool_]:
        """Which candidates are of a method of which nothing was told."""
        methods = {self.shapes[i].method for i in told}
        return np.array([shape.method not in methods for shape in self.shapes], dtype=bool)

    def _plain_value(
        self, told: Mapping[int, Told], plain: Told | None, expected: Expected
    ) -> float:
        if plain is not None and plain.value is not None:
            return plain.value
        if not self._with_plain or not told:
            return 0.0
        below = [(item.value or 0.0) - float(expected.log_ratio[i]) for i, item in told.items()]
        return float(np.median(below))


def _as_expected(i: int, forecast: Forecast, basis: Told) -> Told:
    """A result that is none: what one would be if all came out as expected."""
    ratio = math.exp(float(forecast.mean[i]) - (basis.value or 0.0))
    loads = tuple(LoadSeen(item.load, item.throughput * ratio) for item in basis.seen.loads)
    length = float(forecast.expected.accept_length[i])
    return Told(float(forecast.mean[i]), Seen(loads, length if length > 1 else None))
