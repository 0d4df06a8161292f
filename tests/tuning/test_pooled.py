"""Intervals from few repeats: how often they miss, and what they rest on."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.measurement import Measurement
from autospec.tune.objective import throughput
from autospec.tuning.pooled import Spread, blocks
from tests.tune.fakes import measured

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
arms = st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=5), max_size=6)


@given(arms)
def test_spread_is_that_of_arms_around_their_own_means(found: list[list[float]]) -> None:
    """Moving an arm as a whole changes nothing, and single blocks add nothing."""
    spread = Spread.of(found)
    assert spread.freedom == sum(len(arm) - 1 for arm in found)
    moved = Spread.of([value + 3.0 for value in arm] for arm in found)
    assert moved.freedom == spread.freedom
    assert moved.squares == pytest.approx(spread.squares, abs=1e-9)


def test_one_block_is_judged_by_the_spread_of_others() -> None:
    """Without others its interval is all there is."""
    assert Spread.of([[0.1]]).ratio([0.1], 0.05).high == math.inf
    known = Spread.of([[0.1, 0.12, 0.08], [0.3, 0.31, 0.29], [0.5]])
    ratio = known.ratio([0.5], 0.05)
    assert ratio.value == pytest.approx(math.exp(0.5))
    assert ratio.n == 1
    assert math.exp(0.4) < ratio.low < math.exp(0.5) < ratio.high < math.exp(0.6)


def test_noise_between_launches_widens_the_interval() -> None:
    """No ratio of two launches is known better than launches agree."""
    known = Spread.of([[0.1, 0.12, 0.08], [0.5, 0.5, 0.5]])
    assert known.ratio([0.5], 0.05, 0.1).high > known.ratio([0.5], 0.05).high
    assert known.ratio([0.5], 0.05, 0.1).high >= math.exp(0.6)


@pytest.mark.parametrize("others", [1, 4])
def test_interval_misses_as_often_as_it_says(others: int) -> None:
    """One block and the spread of a few other arms: 10 % of the intervals miss the truth."""
    rng = np.random.default_rng(7)
    misses = 0
    for _ in range(2000):
        known = Spread.of(rng.normal(1.0, 0.03, 3).tolist() for _ in range(others))
        arm = [float(rng.normal(0.2, 0.03))]
        ratio = known.plus(arm).ratio(arm, 0.1)
        misses += not ratio.low <= math.exp(0.2) <= ratio.high
    assert 0.08 < misses / 2000 < 0.12


def test_blocks_pair_the_repeats_that_both_arms_have_at_every_load() -> None:
    """A repeat that lacks a load is no block; the loads count alike."""
    plain = measured(PLAIN, {1: [10, 10, 10], 4: [40, 40, 40]})
    other = measured(NGRAM, {1: [20, 10, 5], 4: [40, 80]})
    found = blocks(other, plain, throughput)
    assert found == pytest.approx([math.log(2) / 2, math.log(2) / 2])
    assert blocks(Measurement(NGRAM, (), 0.0, 0.0), plain, throughput) == []
    assert blocks(other, Measurement(PLAIN, (), 0.0, 0.0), throughput) == []
