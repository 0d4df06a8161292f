"""Step times that a running server corrects: a profile's, where the server shows nothing else.

Each live step gives one ratio to the profile's time at its depth and batch size. It has two parts:
the machine's pace, which all depths share and which comes and goes within seconds (other tenants,
clocks, heat), and what the profile has wrong about this depth. The pace is the median over the last
few steps; what is left goes to the depth's cell, which batch sizes of the same power of two share.
So a depth that ran while the machine was slow looks no worse for it, and a break-even is that of
steps run side by side. A correction is the median of many steps, which stalls do not move, and
counts only once it differs from 1 by more than noise and chance. Pure and bounded in memory.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from itertools import islice
from typing import Final

from autospec.control.costs import Costs

__all__ = ["ENOUGH", "LiveCosts"]

#: Steps of one cell from which on it may correct, and steps that it remembers.
ENOUGH: Final = 8
_REMEMBERED: Final = 64
_RENEWAL: Final = 4
#: Steps that tell the machine's pace: fewer than half of what corrects a cell, so that a cell moves
#: only for what lasts.
_PACE_STEPS: Final = 15
#: Relative difference that is never worth a correction, and the least change of one.
_NOISE: Final = 0.03
_LEAST_CHANGE: Final = 0.01
#: Standard errors by which a correction must differ from none.
_SURE: Final = 3.0
#: Of a normal distribution: standard deviation over median absolute deviation.
_MAD: Final = 1.4826


class _Cell:
    """The last ratios of one kind of step, as logarithms, and what they correct."""

    def __init__(self) -> None:
        self.ratios: deque[float] = deque(maxlen=_REMEMBERED)
        self.seen = 0
        self.factor = 0.0

    def learn(self, ratio: float, noise: float) -> bool:
        """Take one ratio; whether the correction changed."""
        self.ratios.append(ratio)
        self.seen += 1
        if self.seen < ENOUGH or self.seen % _RENEWAL:
            return False
        middle = statistics.median(self.ratios)
        spread = _MAD * statistics.median(abs(value - middle) for value in self.ratios)
        sure = abs(middle) > max(noise, _SURE * spread / math.sqrt(len(self.ratios)))
        factor = middle if sure else 0.0
        if abs(factor - self.factor) < _LEAST_CHANGE:
            return False
        self.factor = factor
        return True


class LiveCosts(Costs):
    """A profile's step times with a server's own corrections.

    Attributes:
        version: rises with every change of a correction that is not common to all depths.
    """

    def __init__(self, costs: Costs, noise: float = 0.0) -> None:
        """Begin with the profile's times.

        Args:
            costs: the profile's.
            noise: absolute logarithm of a ratio that is the machine's own.
        """
        self._costs = costs
        self._noise = max(noise, _NOISE)
        self._cells: dict[tuple[int, int], _Cell] = {}
        self._common = _Cell()
        self.version = 0

    @property
    def depths(self) -> tuple[int, ...]:
        """The drafting depths with step times, rising from 0."""
        return self._costs.depths

    def measured(self, depth: int) -> tuple[float, float]:
        """As the profile's."""
        return self._costs.measured(depth)

    def time_ms(self, depth: int, batch_size: float) -> float:
        """Time of one step at the machine's pace of late.

        Raises:
            KeyError: nothing was measured at this depth.
        """
        factor = self._common.factor + self._factor(depth, batch_size)
        return self._costs.time_ms(depth, batch_size) * math.exp(factor)

    def learn(self, depth: int, batch_size: int, ms: float) -> None:
        """Take the time of one step; depths that the profile does not know are passed over."""
        if ms <= 0 or depth not in self._costs.depths:
            return
        key = depth, batch_size.bit_length()
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = _Cell()
        ratio = math.log(ms / self._costs.time_ms(depth, batch_size))
        latest = list(islice(reversed(self._common.ratios), _PACE_STEPS))
        pace = statistics.median(latest) if latest else 0.0
        if cell.seen >= ENOUGH:
            self._common.learn(ratio - cell.factor, self._noise)
        self.version += cell.learn(ratio - pace, self._noise)

    def known(self, depth: int, batch_size: int) -> bool:
        """Whether enough steps of this depth were seen at about this batch size."""
        cell = self._cells.get((depth, batch_size.bit_length()))
        return cell is not None and cell.seen >= ENOUGH

    def _factor(self, depth: int, batch_size: float) -> float:
        """The correction of the nearest power of two that has enough steps; 0 where none has."""
        mine = max(1, round(batch_size)).bit_length()
        cells = [
            (abs(power - mine), cell.factor)
            for (deep, power), cell in self._cells.items()
            if deep == depth and cell.seen >= ENOUGH
        ]
        return min(cells, default=(0, 0.0))[1]
