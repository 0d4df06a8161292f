"""How much launches differ, estimated from a comparison's own passes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.bench.launches import launch_noise

RATES = st.floats(1.0, 1000.0)


def test_what_a_launch_changed_is_seen() -> None:
    """The third block's launch of A was 10 % faster: one step of that size among two."""
    a = [10.0] * 4 + [11.0] * 2
    found = launch_noise([(a, [10.0] * 6)], block=2)
    assert found == pytest.approx(math.log(1.1) / math.sqrt(2))


def test_levels_are_averaged_by_pair() -> None:
    """What befalls a launch at one of two levels counts half."""
    one = ([10.0, 10.0, 11.0, 11.0], [10.0] * 4)
    both = launch_noise([one, ([5.0] * 4, [5.0] * 4)], block=2)
    assert both == pytest.approx(launch_noise([one], block=2) / 2)


@given(st.lists(RATES, min_size=4, max_size=4), st.floats(0.5, 2.0))
def test_prompts_and_the_true_ratio_are_not_in_it(rates: list[float], ratio: float) -> None:
    """Passes that differ by their prompts alone show no noise, whatever the arms' ratio."""
    levels = [([ratio * rate for rate in rates], rates)]
    assert launch_noise(levels, block=2) == pytest.approx(0, abs=1e-12)


def test_one_block_shows_nothing() -> None:
    """A single pair of launches has nothing to differ from."""
    assert launch_noise([([10.0, 11.0], [10.0, 9.0])], block=2) == 0
