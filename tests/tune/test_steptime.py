"""Step times of shapes not tried: recovery, bounds, the knee, and errors that mean something."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autospec.config import PLAIN, SpecConfig
from autospec.tune.shapes import Shape, shape_of
from autospec.tune.stepparts import Timed
from autospec.tune.steptime import StepTimes, fit_step_times

SHAPES = [
    shape_of(PLAIN),
    *(
        shape_of(SpecConfig("EAGLE3", steps, topk, tokens, "/e"))
        for steps, topk, tokens in [(1, 1, 2), (3, 1, 4), (6, 1, 7), (3, 4, 16), (5, 4, 32)]
    ),
    *(shape_of(SpecConfig("NGRAM", num_draft_tokens=tokens)) for tokens in (4, 8, 16)),
]
BATCHES = (1.0, 4.0, 16.0)
METHODS = [shape.method for shape in SHAPES]

Law = Callable[[Shape, float], float]


def linear(shape: Shape, batch: float) -> float:
    """A floor, verified tokens, and passes of the draft."""
    drafting = 0.4 * shape.passes + (0.7 if shape.passes else 0.0)
    return 10 + 0.05 * batch + 0.03 * batch * shape.tokens + drafting


def kneed(shape: Shape, batch: float) -> float:
    """The same with arithmetic taking over at 64 tokens."""
    return linear(shape, batch) + 0.1 * max(0.0, batch * shape.tokens - 64)


def seen(law: Law, noise: float = 0.0, shapes: list[Shape] = SHAPES) -> list[Timed]:
    """Every shape at every load."""
    rng = np.random.default_rng(0)
    return [
        Timed(shape, batch, law(shape, batch) * float(np.exp(noise * rng.standard_normal())))
        for shape, batch in product(shapes, BATCHES)
    ]


def worst(model: StepTimes, law: Law) -> float:
    """Largest relative error over shapes and loads between and beyond those seen."""
    asked = [shape_of(SpecConfig("EAGLE3", 4, 2, 8, "/e")), *SHAPES]
    return max(
        abs(model.time(shape, batch)[0] / law(shape, batch) - 1)
        for shape, batch in product(asked, (2.0, *BATCHES, 24.0))
    )


def test_a_linear_law_is_recovered() -> None:
    """Without noise, other shapes and loads are predicted within 1 %."""
    model = fit_step_times(seen(linear), METHODS)
    assert worst(model, linear) < 0.01
    assert model.fit_error < 0.005


def test_the_knee_is_found() -> None:
    """Where arithmetic takes over, the model says where, and predicts beyond it."""
    model = fit_step_times(seen(kneed), METHODS)
    assert model.knee == 64
    assert worst(model, kneed) < 0.03


def test_a_law_without_a_knee_gets_none() -> None:
    """A knee has to earn its place."""
    assert fit_step_times(seen(linear, noise=0.01), METHODS).knee is None


def test_between_two_shapes_the_knee_may_lie() -> None:
    """A convex law lies below the chord of two of its points: so does what is expected.

    Samples come from each place of the knee as often as it has chance.
    """
    chains = [shape_of(SpecConfig("EAGLE3", n, 1, n + 1, "/e")) for n in range(1, 16)]
    steep = [Timed(SHAPES[0], 1.0, 10.0), Timed(chains[3], 1.0, 24.0), Timed(chains[14], 1.0, 64.0)]
    model = fit_step_times(steep, METHODS)
    assert len(model.fits) > 1
    near, between, far = (model.time(chains[n], 1.0)[0] for n in (3, 8, 14))
    assert between < near + (far - near) * 5 / 11
    none = np.zeros((4000, model.num_coefficients))
    sampled = model.samples([chains[8]], 1.0, none)[1][:, 0]
    assert len(np.unique(sampled)) > 1
    assert float(sampled.mean()) == pytest.approx(between, rel=0.01)


def test_noise_shows_in_the_fit_error() -> None:
    """The fit error is about the noise of what was fitted."""
    model = fit_step_times(seen(linear, noise=0.03), METHODS)
    assert 0.015 < model.fit_error < 0.045


def test_more_data_make_the_prediction_surer() -> None:
    """The standard error of a shape falls with each further shape measured."""
    asked = shape_of(SpecConfig("EAGLE3", 4, 2, 8, "/e"))
    errors = [
        fit_step_times(seen(linear, 0.02, SHAPES[:n]), METHODS).time(asked, 4.0)[1]
        for n in (1, 3, 6)
    ]
    assert errors == sorted(errors, reverse=True)


def test_plain_alone_already_predicts_with_a_wide_error() -> None:
    """One shape gives a guess of the others that is no less than plain, and says how unsure."""
    model = fit_step_times([Timed(SHAPES[0], 1.0, 20.0)], METHODS)
    value, error = model.time(SHAPES[2], 1.0)
    assert value > 20.0
    assert error > 0.1 * value


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(SHAPES), st.sampled_from(BATCHES), st.floats(1.0, 500.0)),
        min_size=1,
        max_size=12,
    )
)
def test_times_are_positive_and_never_fall_with_work(
    measured: list[tuple[Shape, float, float]],
) -> None:
    """Whatever was measured, more requests, tokens or passes never take less time."""
    model = fit_step_times([Timed(*item) for item in measured], METHODS)
    assert all((fit.coefficients >= 0).all() for fit in model.fits)
    assert sum(fit.chance for fit in model.fits) == pytest.approx(1.0)
    chains = [shape_of(SpecConfig("EAGLE3", n, 1, n + 1, "/e")) for n in range(1, 8)]
    for batch in BATCHES:
        times = model.times(chains, batch)
        assert (times >= 0).all()
        assert (np.diff(times) >= -1e-9).all()
    loads = [float(model.times(chains[:1], batch)[0]) for batch in BATCHES]
    assert loads == pytest.approx(sorted(loads))


def test_the_unit_does_not_matter() -> None:
    """Seconds and milliseconds give the same predictions."""
    ms = seen(linear)
    s = [Timed(item.shape, item.batch_size, item.step_time / 1000) for item in ms]
    one, other = fit_step_times(ms, METHODS), fit_step_times(s, METHODS)
    assert other.time(SHAPES[3], 4.0)[0] * 1000 == pytest.approx(one.time(SHAPES[3], 4.0)[0])
