"""The sampler that knows how speculative decoding behaves.

The cost model gives each candidate an expected value; a Gaussian process on what it missed so far
corrects it; the candidate with the highest expected improvement, times the chance that it runs,
over what its trial costs, is tried next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from autospec.config import PLAIN, SpecConfig
from autospec.tune.feasibility import chance_to_run
from autospec.tune.gp import improvement
from autospec.tune.outlook import Forecast, Outlook, Told, seen_alone
from autospec.tune.samplers import LEAST_GAIN, Proposal
from autospec.tune.seen import Seen

__all__ = ["StructuredSampler"]

Floats = NDArray[np.float64]

#: Power of the distance to its method's other shapes by which a first shape's worth is
#: divided: twice as far from them is worth a sixth less.
_REACH: Final = 0.25
#: A chance to run below this is worth a word.
_DOUBTFUL: Final = 0.9
#: Chance that plain decoding is the best so far, from which on it has to be measured.
_SLIGHT: Final = 0.1


class StructuredSampler:
    """Cost model, Gaussian process on its residual, expected improvement; see ``Sampler``.

    What it asks for depends only on the candidates, the seed, and the set of results told. Where
    plain decoding is among the candidates it is asked for as soon as it may be the best of those
    tried; otherwise its value is 0.

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
        self._outlook = Outlook(self._candidates, seed)
        self._ties = np.random.default_rng(seed).random(len(self._candidates))
        self._running = running
        self._open = set(range(len(self._candidates)))
        self._told: dict[int, Told] = {}
        self._plain: Told | None = None

    def tell(self, config: SpecConfig, value: float | None, seen: Seen | None = None) -> None:
        """Report a result; see ``Sampler``."""
        index = self._index.get(config)
        finite = value is not None and math.isfinite(value)
        known = float(value) if finite and value is not None else None
        if seen is None:
            seen = seen_alone(known) if known is not None else Seen(())
        told = Told(known, seen)
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
        is otherwise the luckiest. What leads plain decoding by less than the lead's standard error
        is not preferred to it: to deploy nothing is the smaller mistake.
        """
        ran = list(self._results())
        if not ran:
            return None
        with threadpool_limits(1):
            mean = self._forecast().mean
        best, plain = max(ran, key=lambda i: float(mean[i])), self._index.get(PLAIN)
        if plain in ran:
            error = math.hypot(self._told[best].seen.error, self._told[plain].seen.error)
            best = best if mean[best] - mean[plain] > error else plain
        return self._candidates[best]

    def _ask_one(self) -> Proposal | None:
        if not self._open:
            return None
        plain = self._index.get(PLAIN)
        # The matrices are small: more threads only wait for each other.
        with threadpool_limits(1):
            if plain is not None and plain in self._open:
                index, proposal = self._choose_with_plain(plain)
            else:
                index, proposal = self._choose()
        self._open.discard(index)
        return proposal

    def _choose_with_plain(self, plain: int) -> tuple[int, Proposal]:
        """Plain decoding unless it is safe to know more of the others first.

        A choice slower than plain decoding is the one mistake that must not be made, and what it
        makes is known well from the others only where they leave it far behind.
        """
        chance = self._chance_of_plain()
        if chance <= _SLIGHT and len(self._open) > 1:
            index, proposal = self._choose(without=plain)
            if not self._told or (proposal.gain or 0.0) >= LEAST_GAIN:
                return index, proposal
        reason = f"what every other has to beat; best of all with a chance of {chance:.0%}"
        return plain, Proposal(PLAIN, reason)

    def _chance_of_plain(self) -> float:
        """How likely plain decoding, not told, beats all that was."""
        ran = self._results()
        if not ran:
            # One shape may come first, so that plain decoding is asked for only where it matters.
            untouched = len(self._open) == len(self._candidates)
            return 0.0 if untouched else 1.0
        best = max(ran, key=lambda i: ran[i].value or 0.0)
        return self._outlook.forecast(ran, self._plain).chance_of_plain(best)

    def _choose(self, without: int | None = None) -> tuple[int, Proposal]:
        forecast, shapes = self._forecast(), self._outlook.shapes
        still_open = np.array([i for i in sorted(self._open) if i != without])
        ran = self._results()
        best = max([forecast.plain, *(told.value or 0.0 for told in ran.values())])
        gains = improvement(forecast.mean[still_open], forecast.spread[still_open], best)
        tried = [(shapes[i], told.value is not None) for i, told in self._told.items()]
        runs = chance_to_run([shapes[i] for i in still_open], tried)
        worth = gains * runs / self._costs(still_open, forecast)
        # Ties between equals go by the seed; nothing else does.
        place = int(np.lexsort((self._ties[still_open], -np.round(worth, 12)))[0])
        place = self._central(still_open, worth, place)
        index = int(still_open[place])
        return index, Proposal(
            self._candidates[index],
            self._reason(index, forecast, float(gains[place]), float(runs[place]), best),
            gain=float(gains[place] * runs[place]),
        )

    def _central(self, indices: NDArray[np.int64], worth: Floats, place: int) -> int:
        """Of a method of which nothing was tried, a shape both good and central.

        What it shows reaches the others best: worth is divided by a power of the distance to them.
        """
        chosen = int(indices[place])
        outlook = self._outlook
        if not outlook.untried(self._results())[chosen]:
            return place
        name = outlook.shapes[chosen].method
        mine = [i for i, index in enumerate(indices) if outlook.shapes[index].method == name]
        rows = outlook.rows[indices[mine]]
        apart = ((rows - rows.mean(axis=0)) ** 2).sum(axis=1)
        far = np.sqrt(apart + apart.mean())
        weighed = worth[mine] / np.maximum(far, 1e-9) ** _REACH
        return mine[int(np.argmax(weighed))]

    def _forecast(self) -> Forecast:
        """What is expected, what is being tried counted in."""
        pending = set(range(len(self._candidates))) - self._open - self._told.keys()
        return self._outlook.with_pending(self._results(), self._plain, pending)

    def _results(self) -> dict[int, Told]:
        return {i: told for i, told in sorted(self._told.items()) if told.value is not None}

    def _costs(self, indices: NDArray[np.int64], forecast: Forecast) -> Floats:
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
        measuring = passes * np.exp(forecast.plain - forecast.mean[indices])
        launching = float(np.mean(launch))
        costs: Floats = (fresh * launching + measuring) / (launching + passes)
        return costs

    def _reason(self, i: int, forecast: Forecast, gain: float, runs: float, best: float) -> str:
        expected = forecast.expected
        middle = float(forecast.mean[i]) - forecast.plain
        half = 1.645 * float(forecast.spread[i])
        doubt = f", runs with a chance of {runs:.0%}" if runs < _DOUBTFUL else ""
        untried = self._outlook.untried(self._results())[i]
        what = "first of its method" if untried else f"gain {100 * gain:.2g} %"
        return (
            f"{what}: expected {math.exp(middle):.2f}x plain "
            f"({math.exp(middle - half):.2f} to {math.exp(middle + half):.2f}) from accept length "
            f"{expected.accept_length[i]:.2f} and {expected.step_ratio[i]:.2f}x plain's step time"
            f"{doubt}; best so far {math.exp(best - forecast.plain):.2f}x"
        )
