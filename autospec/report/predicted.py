"""Predicted against measured: how well the cost model knows arms that it was not shown. Pure."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autospec.config import SpecConfig
from autospec.tune.costmodel import fit_cost_model
from autospec.tune.seen import Seen
from autospec.tune.shapes import Shape, shape_of
from autospec.tuning.points import short

__all__ = ["Prediction", "median_error", "predict"]

#: Each arm is predicted by a model fitted to those of the other parts.
_PARTS: Final = 5
#: Arms from which it is worth it.
_FEWEST: Final = 6


@dataclass(frozen=True, slots=True)
class Prediction:
    """One configuration's throughput over plain decoding's, geometric mean over the loads.

    Attributes:
        config: what ran.
        measured: the ratio.
        predicted: by a cost model that was fitted to other configurations.
        low: of its 90 % interval.
        high: of its 90 % interval.
    """

    config: SpecConfig
    measured: float
    predicted: float
    low: float
    high: float


def predict(arms: Sequence[tuple[SpecConfig, Seen]]) -> tuple[Prediction, ...]:
    """Predict each arm from the others, a fifth of them at a time.

    Args:
        arms: plain decoding and candidates, all measured at the same loads.

    Returns:
        One for each candidate whose method has others to learn from; none where there are too few
        arms or plain decoding is missing.
    """
    plain = next((seen for config, seen in arms if config.is_plain), None)
    shown = [(config, shape_of(config), seen) for config, seen in arms if not config.is_plain]
    if plain is None or len(shown) < _FEWEST:
        return ()
    baseline = (Shape(shown[0][1].method, 0, 0, 1, 1, 1.0), plain)
    found: list[Prediction] = []
    for part in range(_PARTS):
        asked = shown[part::_PARTS]
        others = [row for place, row in enumerate(shown) if place % _PARTS != part]
        known = Counter(shape.method for _, shape, _ in others)
        asked = [row for row in asked if known[row[1].method]]
        if not asked:
            continue
        shapes = [shape for _, shape, _ in (*asked, *others)]
        model = fit_cost_model([baseline, *((shape, seen) for _, shape, seen in others)], shapes)
        expected = model.expect([shape for _, shape, _ in asked])
        for place, (config, _, seen) in enumerate(asked):
            middle, low, high = (short(value) for value in expected.interval(place))
            found.append(Prediction(config, short(_ratio(seen, plain)), middle, low, high))
    return tuple(found)


def median_error(predictions: Sequence[Prediction]) -> float:
    """Median distance of the predicted from the measured ratio, a fraction of the latter."""
    return statistics.median(abs(row.predicted / row.measured - 1) for row in predictions)


def _ratio(seen: Seen, plain: Seen) -> float:
    theirs = {figure.load: figure.throughput for figure in plain.loads}
    logs = [
        math.log(figure.throughput / theirs[figure.load])
        for figure in seen.loads
        if figure.load in theirs
    ]
    return math.exp(statistics.fmean(logs))
