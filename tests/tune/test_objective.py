"""The number a measurement is ranked by."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.errors import ConfigError, InputError, MeasureError
from autospec.measurement import Measurement, RequestRecord, Run
from autospec.tune.objective import OBJECTIVES, figures, find_objective, level_ratios, score
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
    twice = {1: [20] * 3, 8: [21] * 3}
    assert score(measured(NGRAM, twice), BASELINE) == pytest.approx(0)
    assert score(measured(NGRAM, twice | {8: [84] * 3}), BASELINE) == pytest.approx(math.log(2))


def test_fewer_passes_are_compared_with_those_over_the_same_prompts() -> None:
    """A candidate stopped after its first pass has plain decoding's first pass to beat."""
    assert level_ratios(measured(NGRAM, {1: [20], 8: [80]}), BASELINE) == {1: 2.0, 8: 2.0}
    assert figures(BASELINE, 1) == {0: 10, 1: 9, 2: 50}


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


def served(tpot_ms: list[float], *, tokens: int = 11) -> Measurement:
    """One pass of 10 s at concurrency 1, a request for each time per token."""
    records = tuple(
        RequestRecord(
            prompt=index,
            start_s=0.0,
            end_s=10.0,
            chunk_s=(1.0, 1.0 + each * (tokens - 1) / 1000),
            chunk_tokens=(1, tokens),
            completion_tokens=tokens,
        )
        for index, each in enumerate(tpot_ms)
    )
    return Measurement(NGRAM, (Run("tune", 1, 0, 5.0, (0.0, 10.0), 10.0, records),), 1.0, 2.0)


def test_latency_is_that_of_the_median_request() -> None:
    """Half the time per token is worth log 2, whatever the slowest request and the throughput."""
    goal = find_objective("latency")
    value = goal(served([20, 20, 900]), served([40, 40, 40]))
    assert value == pytest.approx(math.log(2))
    assert goal(served([20, 20, 900]), served([20, 20, 900])) == 0


def test_latency_needs_answers_of_more_than_one_chunk() -> None:
    """Without a time per token there is nothing to compare."""
    with pytest.raises(MeasureError, match="no answer has a tpot_ms"):
        find_objective("latency")(served([20]), served([20], tokens=1))


def test_goodput_counts_requests_within_their_limits() -> None:
    """Three of four against one of four: with half a request more, 3.5 over 1.5."""
    goal = find_objective("goodput", "tpot_ms=30")
    value = goal(served([20, 20, 20, 90]), served([20, 90, 90, 90]))
    assert value == pytest.approx(math.log(3.5 / 1.5))
    assert goal.slo is not None
    assert goal.slo.tpot_ms == 30


def test_goodput_has_a_value_where_plain_meets_no_limit() -> None:
    """A limit that plain decoding never meets makes no division by zero."""
    goal = find_objective("goodput", "tpot_ms=30")
    assert goal(served([20, 20]), served([90, 90])) == pytest.approx(math.log(2.5 / 0.5))


def test_objectives_are_found_by_name() -> None:
    """Throughput is the plain score; another name is refused with the known ones."""
    faster = measured(NGRAM, {1: [20] * 3, 8: [80] * 3})
    assert find_objective("throughput")(faster, BASELINE) == score(faster, BASELINE)
    with pytest.raises(ConfigError, match=f"'speed', must be one of {', '.join(OBJECTIVES)}"):
        find_objective("speed")


@pytest.mark.parametrize(("name", "slo"), [("goodput", ""), ("latency", "tpot_ms=3")])
def test_limits_are_goodputs_and_goodputs_only(name: str, slo: str) -> None:
    """Goodput without limits means nothing, and limits would change no other objective."""
    with pytest.raises(ConfigError, match="goodput needs --slo, the others take none"):
        find_objective(name, slo)


def test_limit_that_cannot_be_read_is_refused_by_its_word() -> None:
    """The word is named."""
    with pytest.raises(InputError, match="'speed=3'"):
        find_objective("goodput", "speed=3")
