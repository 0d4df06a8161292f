"""The number a measurement is ranked by."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError, MeasureError
from autospec.tune.objective import OBJECTIVES, find_objective, level_ratios, score
from tests.tune.fakes import measured

NGRAM = SpecConfig.parse("NGRAM tokens=8 breadth=4")
BASELINE = measured(PLAIN, {1: [10, 9, 50], 8: [40, 44, 42]})
levels = st.dictionaries(
    st.integers(1, 64), st.lists(st.floats(0.1, 1e5), min_size=1, max_size=5), min_size=1
)


def test_ratios_are_of_medians_level_by_level() -> None:
    """One outlier in the repeats moves neither side."""
    faster = measured(NGRAM, {1: [20, 1, 20], 8: [21, 21, 999]})
    assert level_ratios(faster, BASELINE) == {1: 2.0, 8: 0.5}


def test_the_score_is_the_log_of_the_geometric_mean() -> None:
    """Twice as fast at one level and half as fast at the other is as good as plain."""
    assert score(measured(NGRAM, {1: [20], 8: [21]}), BASELINE) == pytest.approx(0)
    assert score(measured(NGRAM, {1: [20], 8: [84]}), BASELINE) == pytest.approx(math.log(2))


@given(throughputs=levels, factor=st.floats(0.1, 10))
def test_a_uniform_gain_is_its_own_score(
    throughputs: dict[int, list[float]], factor: float
) -> None:
    """Every pass faster by one factor scores the log of that factor; plain itself scores 0."""
    baseline = measured(PLAIN, throughputs)
    gained = {level: [v * factor for v in values] for level, values in throughputs.items()}
    assert score(baseline, baseline) == pytest.approx(0, abs=1e-9)
    assert score(measured(NGRAM, gained), baseline) == pytest.approx(math.log(factor), abs=1e-6)


def test_only_the_asked_part_counts() -> None:
    """Passes over the confirmation prompts are not scored as tuning."""
    confirm = measured(NGRAM, {1: [20]}, "confirm")
    with pytest.raises(MeasureError, match="no run over the tune prompts"):
        score(confirm, BASELINE)
    assert score(confirm, measured(PLAIN, {1: [10]}, "confirm"), "confirm") == pytest.approx(
        math.log(2)
    )


def test_a_missing_level_is_refused_by_name() -> None:
    """A measurement without one of the baseline's levels cannot be ranked."""
    with pytest.raises(MeasureError, match="concurrency 8: no run"):
        score(measured(NGRAM, {1: [20]}), BASELINE)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_throughput_that_is_no_positive_number_is_refused(value: float) -> None:
    """No score is ever NaN or infinite."""
    with pytest.raises(MeasureError, match="must be above 0"):
        score(measured(NGRAM, {1: [value], 8: [40]}), BASELINE)


def test_a_baseline_without_runs_is_refused() -> None:
    """Nothing can be compared with nothing."""
    with pytest.raises(MeasureError, match="PLAIN: no run over the tune prompts"):
        score(BASELINE, measured(PLAIN, {}))


def test_objectives_are_found_by_name() -> None:
    """The table has ``throughput``; another name is refused with the known ones."""
    assert find_objective("throughput") is score
    with pytest.raises(ConfigError, match=f"'speed', must be one of {', '.join(OBJECTIVES)}"):
        find_objective("speed")
