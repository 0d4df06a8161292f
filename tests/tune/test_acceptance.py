"""Acceptance at depths and widths not tried: bounds, monotony, recovery, sampling error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.metrics import accept_rate_per_pos
from autospec.tune.acceptance import (
    FIRST,
    AcceptanceCurve,
    Drafts,
    first_after,
    fit_acceptance,
    length_error,
    truncated_length,
)

CONDITIONAL = st.lists(st.floats(0.05, 0.98), min_size=1, max_size=12)
HISTOGRAMS = st.lists(st.integers(0, 500), min_size=2, max_size=10).filter(lambda h: sum(h) > 1)


def cumulated(conditional: list[float]) -> tuple[float, ...]:
    """Share of steps whose first drafts are all right."""
    return tuple(np.cumprod(conditional).tolist())


@given(HISTOGRAMS)
def test_a_cut_draft_gains_what_its_histogram_says(histogram: list[int]) -> None:
    """The sum of rates is the mean of the correct drafts cut at the depth, plus the bonus token."""
    rates = accept_rate_per_pos(histogram)
    for depth in range(len(histogram)):
        cut = sum(min(i, depth) * n for i, n in enumerate(histogram)) / sum(histogram)
        assert truncated_length(rates, depth) == pytest.approx(1 + cut)


@given(HISTOGRAMS)
def test_lengths_rise_with_depth_and_stay_within_it(histogram: list[int]) -> None:
    """A longer draft never gains less than its beginning, nor more than all its drafts."""
    rates = accept_rate_per_pos(histogram)
    lengths = [truncated_length(rates, depth) for depth in range(len(histogram))]
    assert lengths == sorted(lengths)
    assert all(1 <= length <= 1 + depth for depth, length in enumerate(lengths))


@given(HISTOGRAMS, st.integers(2, 50))
def test_more_steps_have_a_smaller_sampling_error(histogram: list[int], times: int) -> None:
    """The error falls with the root of the number of steps."""
    few = length_error(histogram, 20)
    many = length_error([count * times for count in histogram], 20)
    assert many <= few
    if few:
        assert many == pytest.approx(few / math.sqrt(times), rel=0.5)


def test_one_step_has_no_known_error() -> None:
    """One draw says nothing of the spread."""
    assert length_error([0, 1], 1) == math.inf


@settings(max_examples=30)
@given(CONDITIONAL)
def test_the_curve_recovers_what_many_steps_show(conditional: list[float]) -> None:
    """At the shape measured, the model's accept length is the measured one."""
    rates = cumulated(conditional)
    curve = fit_acceptance([Drafts(rates, steps=1e5)], len(rates))
    length, _ = curve.length(len(rates))
    assert length == pytest.approx(1 + sum(rates), rel=0.04)


@settings(max_examples=30)
@given(CONDITIONAL, st.integers(1, 16), st.floats(1, 8))
def test_predictions_are_bounded_and_rise_with_width(
    conditional: list[float], depth: int, width: float
) -> None:
    """From 1 to all drafts right; more nodes a level never gain less."""
    curve = fit_acceptance([Drafts(cumulated(conditional), steps=200)], 16)
    narrow, _ = curve.length(depth)
    wide, _ = curve.length(depth, width)
    assert 1 <= narrow <= wide <= 1 + depth


def test_more_steps_make_the_model_surer() -> None:
    """The standard error of a prediction falls with what it rests on, and rises with distance."""
    rates = (0.8, 0.6, 0.45)
    errors = [fit_acceptance([Drafts(rates, steps=n)], 8).length(3)[1] for n in (10, 100, 1000)]
    assert errors == sorted(errors, reverse=True)
    curve = fit_acceptance([Drafts(rates, steps=1000)], 8)
    relative = [curve.length(depth)[1] / curve.length(depth)[0] for depth in (3, 5, 8)]
    assert relative == sorted(relative)


def test_nothing_measured_gives_the_prior() -> None:
    """An untried method is expected to be ordinary, within wide bounds."""
    length, error = fit_acceptance([], 4).length(4)
    assert 2 < length < 4
    assert error > 0.3


def tree(curve: AcceptanceCurve, depth: int, width: float) -> float:
    """Tokens a step."""
    return curve.length(depth, width)[0]


def test_what_width_is_worth_is_learned_from_two_widths() -> None:
    """Where trees were measured to gain much, other widths are expected to gain much too."""
    chain = Drafts((0.6, 0.36, 0.22), 1.0, 5000)
    gaining = Drafts((0.85, 0.72, 0.6), 4.0, 5000)
    idle = Drafts((0.61, 0.37, 0.22), 4.0, 5000)
    much = fit_acceptance([chain, gaining], 4)
    little = fit_acceptance([chain, idle], 4)
    assert tree(much, 3, 2.0) > tree(little, 3, 2.0) + 0.2
    assert tree(much, 3, 4.0) == pytest.approx(1 + 0.85 + 0.72 + 0.6, rel=0.05)
    assert tree(little, 3, 4.0) == pytest.approx(tree(little, 3, 1.0), rel=0.05)


def test_the_length_bias_is_learned_from_two_lengths() -> None:
    """Where long drafts were measured to start worse, the lengths between start in between."""
    short, long = Drafts((0.9, 0.8), steps=5000), Drafts((0.75,) + (0.5,) * 7, steps=5000)
    curve = fit_acceptance([short, long], 8)
    between = fit_acceptance([long], 8)
    assert curve.length(4)[0] > between.length(4)[0]


def test_samples_scatter_as_the_error_says() -> None:
    """Sampled lengths have the spread that the first-order error names."""
    curve = fit_acceptance([Drafts((0.8, 0.6, 0.45), steps=300)], 6)
    draws = np.random.default_rng(0).standard_normal((4000, len(curve.mean)))
    sampled = curve.lengths(np.array([5]), np.array([1.0]), draws)[:, 0]
    assert sampled.std() == pytest.approx(curve.length(5)[1], rel=0.3)


def test_easy_prompts_are_believed_easy_for_an_untried_method() -> None:
    """One method's first position moves another's, by less than itself, and leaves less doubt."""
    easy = fit_acceptance([Drafts((0.97, 0.94), steps=2000)], 2)
    hard = fit_acceptance([Drafts((0.3, 0.1), steps=2000)], 2)
    assert first_after([]) == FIRST
    assert FIRST[0] < first_after([easy])[0] < easy.mean[0]
    assert hard.mean[0] < first_after([hard])[0] < FIRST[0]
    assert first_after([easy, easy])[1] < first_after([easy])[1] < FIRST[1]
