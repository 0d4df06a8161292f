"""How many drafts a step finds right, at depths and widths not yet tried. Pure.

The share of steps whose first d drafts are right is a product of conditional rates, and their sum
gives the tokens a step: ``E(k) = 1 + a_1 + ... + a_k``. The logit of the rate at depth d is

    theta_d + beta * log2(width) - delta * log2(depth drafted / 4)

``theta`` is a random walk over depth, so that one run tells about the depths beside its own, the
less the further; ``beta`` is what doubling the nodes a level gains; ``delta`` is the length bias: a
step that stops early begins its successor inside an easy stretch, so that short drafts look better
than the beginnings of long ones. All three are learned from what is measured, by a Gaussian
approximation around the most likely values (Laplace).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from autospec.tune.normal import root_of

__all__ = [
    "FIRST",
    "AcceptanceCurve",
    "Drafts",
    "first_after",
    "fit_acceptance",
    "length_error",
    "truncated_length",
]

Floats = NDArray[np.float64]

#: What is believed before anything is measured, as (mean, standard deviation). A rate of 0.71,
#: from 0.47 to 0.87, at the first position.
FIRST: Final = (0.9, 1.0)
#: Share of its variance that all methods have in common: some texts are easy for any drafter.
COMMON: Final = 0.5
#: From one position to the next.
NEXT: Final = (-0.08, 0.25)
#: Twice as many nodes a level take a rate of 0.71 to 0.80.
WIDER: Final = (0.5, 0.3)
#: A draft twice as long; drafting from a text whose difficulty persists over 2 to 10 tokens shows
#: 0.04 to 0.15, and blocks drafted at once lose up to twice that.
LONGER: Final = (0.1, 0.08)
#: Depth at which the length bias is zero.
_REFERENCE: Final = 4.0
#: Prompts differ, so that more steps of the same prompts tell less and less: as many at most.
_MOST_STEPS: Final = 2000.0
#: Verify steps behind rates of which this is not known.
_USUAL_STEPS: Final = 1000.0
_ITERATIONS: Final = 12


@dataclass(frozen=True, slots=True)
class Drafts:
    """Acceptance seen with one shape.

    Attributes:
        rates: share of verify steps whose first 1, 2, ... drafts were right.
        width: nodes a level.
        steps: verify steps; None where it is not known.
        depth: drafts a step; the number of rates unless given.
    """

    rates: tuple[float, ...]
    width: float = 1.0
    steps: float | None = None
    depth: int | None = None


def truncated_length(rates: Sequence[float], depth: int) -> float:
    """Tokens a step of a draft cut at a depth: ``1 + a_1 + ... + a_depth``."""
    return 1.0 + sum(rates[:depth])


def length_error(histogram: Sequence[int], depth: int) -> float:
    """Standard error of the tokens a step of a draft cut at a depth, from sampling alone.

    The steps of a histogram are draws of ``min(correct, depth)``; its standard deviation over the
    root of their number. Infinite for fewer than two steps.

    Args:
        histogram: item *i* is the number of verify steps with *i* correct drafts.
        depth: where the draft is cut.
    """
    steps = sum(histogram)
    if steps < 2:
        return math.inf
    cut = [(min(correct, depth), count) for correct, count in enumerate(histogram)]
    mean = sum(value * count for value, count in cut) / steps
    spread = sum(count * (value - mean) ** 2 for value, count in cut) / (steps - 1)
    return math.sqrt(spread / steps)


@dataclass(frozen=True)
class AcceptanceCurve:
    """One method's acceptance at any depth and width, with what is not known of it.

    Attributes:
        mean: most likely parameters, ``theta_1 ... theta_D, beta, delta``.
        covariance: of the parameters.
    """

    mean: Floats
    covariance: Floats

    @cached_property
    def _root(self) -> Floats:
        return root_of(self.covariance)

    def lengths(
        self, depths: NDArray[np.int64], widths: Floats, draws: Floats | None = None
    ) -> Floats:
        """Tokens a step, bonus token included.

        Args:
            depths: drafts a step, from 0 to the D of the fit, shape (n,).
            widths: nodes a level, shape (n,).
            draws: standard normal, shape (s, D + 2), for as many samples; none for the most likely.

        Returns:
            Shape (s, n), or (n,) without draws; from 1 to 1 + depth.
        """
        parameters = self.mean[None, :]
        if draws is not None:
            parameters = parameters + draws @ self._root.T
        theta, beta, delta = parameters[:, :-2], parameters[:, -2], parameters[:, -1]
        most = theta.shape[1]
        # One column for each different pair of depth and width: spaces repeat them often.
        pairs, place = np.unique(
            np.stack([depths.astype(np.float64), widths]), axis=1, return_inverse=True
        )
        drafted, wide = np.maximum(pairs[0], 1.0), np.log2(pairs[1])
        shift = np.maximum(beta, 0.0)[:, None] * wide[None, :]
        shift = shift - delta[:, None] * np.log2(drafted / _REFERENCE)[None, :]
        rates = _sigmoid(theta[:, None, :] + shift[:, :, None]).cumprod(axis=2)
        within = np.arange(1, most + 1)[None, :] <= pairs[0][:, None]
        lengths: Floats = 1.0 + (rates * within[None, :, :]).sum(axis=2)
        lengths = lengths[:, place.reshape(-1)]
        return lengths if draws is not None else lengths[0]

    def length(self, depth: int, width: float = 1.0) -> tuple[float, float]:
        """Tokens a step and their standard error, to first order."""
        depths, widths = np.array([depth]), np.array([float(width)])
        value = float(self.lengths(depths, widths)[0])
        # Each parameter moved by its own share of the uncertainty, one principal axis at a time.
        moved = self.lengths(depths, widths, np.eye(len(self.mean)))[:, 0]
        return value, float(np.sqrt(((moved - value) ** 2).sum()))


def first_after(others: Sequence[AcceptanceCurve]) -> tuple[float, float]:
    """What is believed of ``theta_1`` of a method after others were measured on the same prompts.

    Args:
        others: curves of methods that were measured.

    Returns:
        Mean and standard deviation; ``FIRST`` without others.
    """
    if not others:
        return FIRST
    above = statistics.fmean(float(curve.mean[0]) for curve in others) - FIRST[0]
    weight = len(others) * COMMON / (len(others) * COMMON + 1 - COMMON)
    return FIRST[0] + weight * above, FIRST[1] * math.sqrt(1 - weight * COMMON)


def fit_acceptance(
    seen: Sequence[Drafts], depth: int, first: tuple[float, float] = FIRST
) -> AcceptanceCurve:
    """Learn a method's acceptance from what was measured; nothing measured gives the prior.

    Args:
        seen: acceptance by shape.
        depth: deepest draft that will be asked about, at least 1.
        first: what is believed of ``theta_1`` beforehand, as (mean, standard deviation).
    """
    size = max([depth, 1, *(len(item.rates) for item in seen)])
    mean, precision = _prior(size, first)
    design, successes, totals = _rows(seen, size)
    x = mean.copy()
    for _ in range(_ITERATIONS):
        chance = _sigmoid(design @ x)
        slope = design.T @ (successes - totals * chance) - precision @ (x - mean)
        curvature = (design.T * (totals * chance * (1 - chance))) @ design + precision
        step = np.linalg.solve(curvature, slope)
        x = x + np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-6:
            break
    chance = _sigmoid(design @ x)
    curvature = (design.T * (totals * chance * (1 - chance))) @ design + precision
    return AcceptanceCurve(x, np.asarray(np.linalg.inv(curvature), dtype=np.float64))


def _prior(size: int, first: tuple[float, float]) -> tuple[Floats, Floats]:
    """Mean and precision of ``theta_1 ... theta_size, beta, delta``."""
    mean = np.concatenate(
        [first[0] + NEXT[0] * np.arange(size), np.array([WIDER[0], LONGER[0]])]
    ).astype(np.float64)
    precision = np.zeros((size + 2, size + 2))
    precision[0, 0] = first[1] ** -2
    for d in range(size - 1):
        precision[d : d + 2, d : d + 2] += np.array([[1, -1], [-1, 1]]) * NEXT[1] ** -2
    precision[-2, -2], precision[-1, -1] = WIDER[1] ** -2, LONGER[1] ** -2
    return mean, precision


def _rows(seen: Sequence[Drafts], size: int) -> tuple[Floats, Floats, Floats]:
    """Design, successes and trials: one row a position of each shape seen."""
    design: list[Floats] = []
    successes: list[float] = []
    totals: list[float] = []
    for item in seen:
        steps = _USUAL_STEPS if item.steps is None else item.steps
        reached = steps / (1 + steps / _MOST_STEPS)
        drafted = item.depth or len(item.rates)
        for d, rate in enumerate(item.rates):
            row = np.zeros(size + 2)
            row[d], row[-2] = 1.0, math.log2(item.width)
            row[-1] = -math.log2(max(1, drafted) / _REFERENCE)
            right = min(reached, steps / (1 + steps / _MOST_STEPS) * rate)
            design.append(row)
            successes.append(right)
            totals.append(reached)
            reached = right
    return (
        np.array(design).reshape(-1, size + 2),
        np.array(successes, dtype=np.float64),
        np.array(totals, dtype=np.float64),
    )


def _sigmoid(x: Floats) -> Floats:
    result: Floats = 1.0 / (1.0 + np.exp(-np.clip(x, -30.0, 30.0)))
    return result
