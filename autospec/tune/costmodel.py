"""Expected throughput of shapes not yet tried: acceptance over step time, with an interval. Pure.

For b requests of which each gains E tokens in a step of time T::

    1 / throughput = T / (b * E) + rest

``rest`` is the time a token costs outside decode steps, prefill above all; it does not depend on
the shape and is seen wherever both the throughput and the step time are. Where the step time is not
counted it is read off the throughput, ``T = b * E / throughput``, and there is no rest.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.tune.acceptance import AcceptanceCurve, Drafts, first_after, fit_acceptance
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.shapes import Shape
from autospec.tune.stepparts import Timed
from autospec.tune.steptime import StepTimes, fit_step_times

__all__ = ["CostModel", "Expected", "fit_cost_model"]

Floats = NDArray[np.float64]

#: Samples that the intervals rest on.
_DRAWS: Final = 48
#: Half the width of a 90 % interval, in standard deviations.
_REACH: Final = 1.645


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of some shapes, item *i* of each being that of shape *i*.

    Attributes:
        log_ratio: of the throughput to plain decoding's, mean over the loads.
        spread: its standard deviation.
        accept_length: tokens a step, bonus token included.
        step_ratio: time of a step over plain decoding's, geometric mean over the loads.
    """

    log_ratio: Floats
    spread: Floats
    accept_length: Floats
    step_ratio: Floats

    def interval(self, i: int) -> tuple[float, float, float]:
        """Throughput of one shape over plain decoding's, with a 90 % interval."""
        middle, half = float(self.log_ratio[i]), _REACH * float(self.spread[i])
        return float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half))


@dataclass(frozen=True, slots=True)
class _Load:
    """One load, as all trials together show it.

    Attributes:
        load: requests in flight.
        batch_size: running requests a step.
        rest: time a token costs outside decode steps, in the unit of the step times.
    """

    load: int
    batch_size: float
    rest: float


@dataclass(frozen=True, slots=True)
class CostModel:
    """Acceptance by method, step times, and the loads.

    Attributes:
        curves: method -> acceptance.
        step_times: of every method.
        loads: that the throughput is over.
    """

    curves: Mapping[str, AcceptanceCurve]
    step_times: StepTimes
    loads: tuple[_Load, ...]

    def expect(self, shapes: Sequence[Shape]) -> Expected:
        """Throughputs against plain decoding's, of shapes whose methods the fit knew."""
        size = self.step_times.num_coefficients
        draws = np.random.default_rng(0).standard_normal((_DRAWS, size))
        lengths, sampled = self._lengths(shapes)
        plain = Shape(shapes[0].method, 0, 0, 1, 1, 1.0) if shapes else None
        asked = [*shapes, *([plain] if plain else [])]
        with_plain = np.append(lengths, 1.0)
        sampled = np.hstack([sampled, np.ones((_DRAWS, 1))])
        logs, steps = np.zeros(len(asked)), np.zeros(len(asked))
        samples = np.zeros((_DRAWS, len(asked)))
        for load in self.loads:
            times, drawn = self.step_times.samples(asked, load.batch_size, draws)
            logs -= np.log(times / (load.batch_size * with_plain) + load.rest)
            samples -= np.log(drawn / (load.batch_size * sampled) + load.rest)
            steps += np.log(times)
        count = len(self.loads)
        ratios = samples[:, :-1] - samples[:, -1:]
        return Expected(
            log_ratio=(logs[:-1] - logs[-1]) / count,
            spread=ratios.std(axis=0) / count,
            accept_length=lengths,
            step_ratio=np.exp((steps[:-1] - steps[-1]) / count),
        )

    def _lengths(self, shapes: Sequence[Shape]) -> tuple[Floats, Floats]:
        """Tokens a step, and samples of them; those of one method belong together."""
        lengths = np.ones(len(shapes))
        sampled = np.ones((_DRAWS, len(shapes)))
        for name, curve in self.curves.items():
            mine = [i for i, shape in enumerate(shapes) if shape.method == name and shape.depth]
            if not mine:
                continue
            depths = np.array([shapes[i].depth for i in mine])
            widths = np.array([shapes[i].width for i in mine])
            # The same draws for all methods: two that are known equally well are equals.
            rng = np.random.default_rng(1)
            draws = rng.standard_normal((_DRAWS, len(curve.mean)))
            lengths[mine] = curve.lengths(depths, widths)
            sampled[:, mine] = curve.lengths(depths, widths, draws)
        return lengths, sampled


def fit_cost_model(trials: Sequence[tuple[Shape, Seen]], shapes: Sequence[Shape]) -> CostModel:
    """Learn what trials show.

    Args:
        trials: of plain decoding and others; a throughput is in at least one.
        shapes: that will be asked about.
    """
    depths: dict[str, int] = {}
    for shape in shapes:
        depths[shape.method] = max(shape.depth, depths.get(shape.method, 0))
    curves = _curves(trials, {name: depth for name, depth in depths.items() if depth})
    sizes = _batch_sizes(trials)
    timed: list[Timed] = []
    rests: dict[int, list[float]] = {load: [] for load in sizes}
    for shape, seen in trials:
        length, error = _length(shape, seen, curves)
        for figure in seen.loads:
            timed.append(_timed(shape, figure, length, error, sizes[figure.load]))
            if figure.step_time_ms is not None:
                inside = timed[-1].step_time / (timed[-1].batch_size * length)
                rests[figure.load].append(1000.0 / figure.throughput - inside)
    methods = [*depths, *(shape.method for shape, _ in trials)]
    return CostModel(
        curves,
        fit_step_times(timed, methods),
        tuple(
            _Load(load, size, max(0.0, statistics.median(rests[load] or [0.0])))
            for load, size in sorted(sizes.items())
        ),
    )


def _curves(
    trials: Sequence[tuple[Shape, Seen]], depths: Mapping[str, int]
) -> dict[str, AcceptanceCurve]:
    """Acceptance by method; one that was not tried learns how hard the prompts are from others."""
    drafts: dict[str, list[Drafts]] = {name: [] for name in depths}
    for shape, seen in trials:
        if shape.method in drafts and (seen.rates or seen.accept_length is not None):
            drafts[shape.method].append(_drafts(shape, seen))
    tried = {name: fit_acceptance(found, depths[name]) for name, found in drafts.items() if found}
    first = first_after(list(tried.values()))
    return {
        name: tried.get(name) or fit_acceptance((), depth, first) for name, depth in depths.items()
    }


def _batch_sizes(trials: Sequence[tuple[Shape, Seen]]) -> dict[int, float]:
    """Load -> running requests a step, median over trials; the load itself where none counts."""
    counted: dict[int, list[float]] = {}
    for _, seen in trials:
        for figure in seen.loads:
            known = counted.setdefault(figure.load, [])
            if figure.batch_size is not None:
                known.append(figure.batch_size)
    return {load: statistics.median(known or [float(load)]) for load, known in counted.items()}


def _timed(shape: Shape, figure: LoadSeen, length: float, error: float, size: float) -> Timed:
    if figure.step_time_ms is not None:
        return Timed(shape, figure.batch_size or size, figure.step_time_ms)
    return Timed(shape, size, 1000.0 * size * length / figure.throughput, error)


def _length(shape: Shape, seen: Seen, curves: Mapping[str, AcceptanceCurve]) -> tuple[float, float]:
    """Tokens a step of a trial, and its relative error where it has to be guessed."""
    if not shape.depth:
        return 1.0, 0.0
    if seen.accept_length is not None:
        return seen.accept_length, 0.0
    if seen.rates:
        return 1.0 + sum(seen.rates), 0.0
    value, error = curves[shape.method].length(shape.depth, shape.width)
    return value, error / value


def _drafts(shape: Shape, seen: Seen) -> Drafts:
    """Acceptance of a trial; a length alone is taken for a rate that is the same at each depth."""
    rates = seen.rates
    if not rates and seen.accept_length is not None and shape.depth:
        rates = _even_rates(seen.accept_length, shape.depth)
    return Drafts(rates[: shape.depth], shape.width, seen.verify_ct, shape.depth or None)


def _even_rates(length: float, depth: int) -> tuple[float, ...]:
    """Rates ``p, p^2, ...`` whose sum is the drafts found right, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        if 1 + sum(middle**d for d in range(1, depth + 1)) < length:
            low = middle
        else:
            high = middle
    return tuple(low**d for d in range(1, depth + 1))
