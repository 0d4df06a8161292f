"""The sampler that knows how speculative decoding behaves.

The cost model gives each candidate an expected value; a Gaussian process on what it missed so far
corrects it; the candidate with the highest expected improvement, times the chance that it runs,
over what its trial costs, is tried next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from autospec.config import PLAIN, SpecConfig
from autospec.tune.costmodel import CostModel, Expected, fit_cost_model
from autospec.tune.feasibility import chance_to_run
from autospec.tune.gp import Residual, improvement, unit_columns
from autospec.tune.samplers import Proposal, encode
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.shapes import Shape, shape_of

__all__ = ["StructuredSampler"]

Floats = NDArray[np.float64]

#: A value told without anything beside it: the throughput of one request against plain's.
_ALONE: Final = 1
#: How far the cost model may be off for a method of which nothing was tried, as a log ratio: what
#: it learned is of other methods' costs.
_UNTRIED: Final = 0.3
#: Power of the distance to its method's other shapes by which a first shape's worth is
#: divided: twice as far from them is worth a sixth less.
_REACH: Final = 0.25
#: A chance to run below this is worth a word.
_DOUBTFUL: Final = 0.9


@dataclass(frozen=True, slots=True)
class _Told:
    """One result.

    Attributes:
        value: the objective; None where it could not run.
        seen: what it showed beside it.
    """

    value: float | None
    seen: Seen


@dataclass(frozen=True, slots=True)
class _Belief:
    """What is believed of every candidate.

    Attributes:
        model: the cost model.
        expected: by the cost model alone.
        mean: expected value, with what the cost model missed nearby.
        spread: its standard deviation.
    """

    model: CostModel
    expected: Expected
    mean: Floats
    spread: Floats


class StructuredSampler:
    """Cost model, Gaussian process on its residual, expected improvement; see ``Sampler``.

    What it asks for depends only on the candidates, the seed, and the set of results told. Where
    plain decoding is among the candidates it is asked for first; otherwise its value is 0.

    Args:
        candidates: what may be asked for.
        seed: decides between equals.
        running: says whether a candidate can be measured without a new launch.
    """

    def __init__(
        self,
        candidates: Sequence[SpecConfig],
        seed: int,
        *,
        running: Callable[[SpecConfig], bool] = lambda _config: False,
    ) -> None:
        self._candidates = sorted(set(candidates))
        self._index = {config: i for i, config in enumerate(self._candidates)}
        self._shapes = [shape_of(config) for config in self._candidates]
        self._rows = unit_columns(encode(self._candidates))
        self._ties = np.random.default_rng(seed).random(len(self._candidates))
        self._seed = seed
        self._running = running
        self._open = set(range(len(self._candidates)))
        self._told: dict[int, _Told] = {}
        self._plain: _Told | None = None
        self._offset = 0.0

    def tell(self, config: SpecConfig, value: float | None, seen: Seen | None = None) -> None:
        """Report a result; see ``Sampler``."""
        index = self._index.get(config)
        finite = value is not None and math.isfinite(value)
        known = float(value) if finite and value is not None else None
        if seen is None:
            alone = (LoadSeen(_ALONE, math.exp(known)),) if known is not None else ()
            seen = Seen(alone)
        told = _Told(known, seen)
        if config.is_plain and known is not None:
            self._plain = told
        if index is not None:
            self._open.discard(index)
            self._told[index] = told

    @overload
    def ask(self) -> Proposal | None: ...
    @overload
    def ask(self, n: int) -> tuple[Proposal, ...]: ...
    def ask(self, n: int | None = None) -> Proposal | tuple[Proposal, ...] | None:
        """The next candidate with the reason for it, or None; or up to ``n`` to try side by side.

        What was asked for and not yet told is taken to come out as expected, so that the
        candidates of a batch differ in what they can show.
        """
        if n is None:
            return self._ask_one()
        batch = (self._ask_one() for _ in range(n))
        return tuple(proposal for proposal in batch if proposal is not None)

    def best(self) -> SpecConfig | None:
        """The candidate told of which most is believed; None before anything ran.

        A value with noise is drawn towards what the others speak for: the best of many noisy values
        is otherwise the luckiest.
        """
        ran = list(self._results())
        if not ran:
            return None
        with threadpool_limits(1):
            mean = self._believe().mean
        return self._candidates[max(ran, key=lambda i: float(mean[i]))]

    def _ask_one(self) -> Proposal | None:
        if not self._open:
            return None
        plain = self._index.get(PLAIN)
        if plain in self._open and plain is not None:
            self._open.discard(plain)
            return Proposal(PLAIN, "what every other has to beat")
        # The matrices are small: more threads only wait for each other.
        with threadpool_limits(1):
            index, proposal = self._choose()
        self._open.discard(index)
        return proposal

    def _choose(self) -> tuple[int, Proposal]:
        belief = self._believe()
        still_open = np.array(sorted(self._open))
        best = self._best_value()
        gains = improvement(belief.mean[still_open], belief.spread[still_open], best)
        tried = [(self._shapes[i], told.value is not None) for i, told in self._told.items()]
        runs = chance_to_run([self._shapes[i] for i in still_open], tried)
        worth = gains * runs / self._costs(still_open, belief)
        # Ties between equals go by the seed; nothing else does.
        place = int(np.lexsort((self._ties[still_open], -np.round(worth, 12)))[0])
        place = self._central(still_open, worth, place)
        index = int(still_open[place])
        return index, Proposal(
            self._candidates[index],
            self._reason(index, belief, float(gains[place]), float(runs[place]), best),
            gain=float(gains[place] * runs[place]),
        )

    def _central(self, indices: NDArray[np.int64], worth: Floats, place: int) -> int:
        """Of a method of which nothing was tried, a shape both good and central.

        What it shows reaches the others best: worth is divided by a power of the distance to them.
        """
        chosen = int(indices[place])
        if not self._untried(self._results())[chosen]:
            return place
        name = self._shapes[chosen].method
        mine = [i for i, index in enumerate(indices) if self._shapes[index].method == name]
        rows = self._rows[indices[mine]]
        apart = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1)
        far = np.sqrt(apart + apart.mean())
        weighed = worth[mine] / np.maximum(far, 1e-9) ** _REACH
        return mine[int(np.argmax(weighed))]

    def _believe(self) -> _Belief:
        """Fit what was told; what is being tried is then taken to come out as it is expected."""
        belief = self._fit(self._results())
        pending = set(range(len(self._candidates))) - self._open - self._told.keys()
        if not pending:
            return belief
        told = self._results()
        for i in sorted(pending):
            told[i] = self._as_expected(i, belief)
        return self._fit(told)

    def _results(self) -> dict[int, _Told]:
        return {i: told for i, told in sorted(self._told.items()) if told.value is not None}

    def _as_expected(self, i: int, belief: _Belief) -> _Told:
        ratio = math.exp(float(belief.mean[i]) - self._offset)
        plain = self._baseline().loads
        loads = tuple(LoadSeen(item.load, item.throughput * ratio) for item in plain)
        length = float(belief.expected.accept_length[i])
        return _Told(float(belief.mean[i]), Seen(loads, length if length > 1 else None))

    def _fit(self, told: dict[int, _Told]) -> _Belief:
        trials = [(self._shapes[i], item.seen) for i, item in told.items()]
        if PLAIN not in self._index:
            trials.append((shape_of(PLAIN), self._baseline()))
        model = _model(trials, self._shapes)
        expected = model.expect(self._shapes)
        self._offset = self._find_offset(told, expected)
        mean, spread = expected.log_ratio + self._offset, np.full(len(self._shapes), _UNTRIED)
        if told:
            rows = list(told)
            values = np.array([told[i].value for i in rows])
            error = float(np.median([told[i].seen.error for i in rows]))
            residual = Residual(self._rows[rows], values - mean[rows], error, self._seed)
            missed, spread = residual.predict(self._rows)
            mean = mean + missed
            spread = np.where(self._untried(told), np.maximum(spread, _UNTRIED), spread)
        return _Belief(model, expected, mean, np.hypot(spread, expected.spread))

    def _untried(self, told: Collection[int]) -> NDArray[np.bool_]:
        """Which candidates are of a method of which nothing was told."""
        methods = {self._shapes[i].method for i in told}
        return np.array([shape.method not in methods for shape in self._shapes], dtype=bool)

    def _baseline(self) -> Seen:
        """What plain decoding showed; a throughput of 1 where it was not told."""
        if self._plain is not None and self._plain.seen.loads:
            return self._plain.seen
        return Seen((LoadSeen(_ALONE, 1.0),))

    def _find_offset(self, told: dict[int, _Told], expected: Expected) -> float:
        """Value of plain decoding: its own, or 0, or what the others say."""
        if self._plain is not None and self._plain.value is not None:
            return self._plain.value
        if PLAIN not in self._index or not told:
            return 0.0
        above = [(item.value or 0.0) - float(expected.log_ratio[i]) for i, item in told.items()]
        return float(np.median(above))

    def _best_value(self) -> float:
        values = [told.value for told in self._told.values() if told.value is not None]
        return max([self._offset, *values])

    def _costs(self, indices: NDArray[np.int64], belief: _Belief) -> Floats:
        """What the trial of each candidate costs, in shares of a launch and its passes."""
        known = [told.seen for told in self._told.values()]
        known += [self._plain.seen] if self._plain is not None else []
        launch = [seen.launch_s for seen in known if seen.launch_s > 0]
        passes = self._plain.seen.passes_s if self._plain is not None else 0.0
        fresh = np.array([not self._running(self._candidates[i]) for i in indices], dtype=float)
        if not launch or passes <= 0:
            shared: Floats = (1.0 + fresh) / 2
            return shared
        # The passes of a faster candidate are over sooner.
        measuring = passes * np.exp(self._offset - belief.mean[indices])
        launching = float(np.mean(launch))
        costs: Floats = (fresh * launching + measuring) / (launching + passes)
        return costs

    def _reason(self, i: int, belief: _Belief, gain: float, runs: float, best: float) -> str:
        expected = belief.expected
        middle = float(belief.mean[i]) - self._offset
        half = 1.645 * float(belief.spread[i])
        doubt = f", runs with a chance of {runs:.0%}" if runs < _DOUBTFUL else ""
        untried = self._untried(self._results())[i]
        what = "first of its method" if untried else f"gain {100 * gain:.2g} %"
        return (
            f"{what}: expected {math.exp(middle):.2f}x plain "
            f"({math.exp(middle - half):.2f} to {math.exp(middle + half):.2f}) from accept length "
            f"{expected.accept_length[i]:.2f} and {expected.step_ratio[i]:.2f}x plain's step time"
            f"{doubt}; best so far {math.exp(best - self._offset):.2f}x"
        )


def _model(trials: Sequence[tuple[Shape, Seen]], shapes: Sequence[Shape]) -> CostModel:
    """Fit to the trials that show a throughput; to plain decoding of speed 1 where none does."""
    shown = [(shape, seen) for shape, seen in trials if seen.loads]
    return fit_cost_model(shown or [(shape_of(PLAIN), Seen((LoadSeen(_ALONE, 1.0),)))], shapes)
