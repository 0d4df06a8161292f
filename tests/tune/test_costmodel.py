"""Expected throughput: acceptance over step time, from what trials show."""

from __future__ import annotations

import math

import pytest

from autospec.config import PLAIN, SpecConfig
from autospec.tune.costmodel import fit_cost_model
from autospec.tune.seen import LoadSeen, Seen
from autospec.tune.shapes import Shape, shape_of

CHAINS = {n: SpecConfig("EAGLE3", n, 1, n + 1, "/e") for n in range(1, 9)}
RATE = 0.8
LOADS = (1, 8)


def step_ms(shape: Shape, load: int) -> float:
    """A law that the model can learn."""
    return 10 + 0.02 * load * shape.tokens + (0.5 + 0.3 * shape.passes if shape.depth else 0.0)


def show(config: SpecConfig, *, timed: bool = True, rest_ms: float = 0.0) -> tuple[Shape, Seen]:
    """A trial without noise."""
    shape = shape_of(config)
    rates = tuple(RATE**d for d in range(1, shape.depth + 1))
    loads = []
    for load in LOADS:
        step = step_ms(shape, load)
        speed = 1000 / (step / (load * (1 + sum(rates))) + rest_ms)
        loads.append(LoadSeen(load, speed, float(load), step if timed else None))
    return shape, Seen(tuple(loads), 1 + sum(rates) if rates else None, rates, 5000)


def truth(config: SpecConfig, rest_ms: float = 0.0) -> float:
    """Log throughput over plain's, mean over the loads."""
    logs = []
    for a, b in zip(
        show(config, rest_ms=rest_ms)[1].loads, show(PLAIN, rest_ms=rest_ms)[1].loads, strict=True
    ):
        logs.append(math.log(a.throughput / b.throughput))
    return sum(logs) / len(logs)


@pytest.mark.parametrize("timed", [True, False])
def test_other_lengths_are_predicted_from_three_trials(*, timed: bool) -> None:
    """With and without step times, every chain's throughput is predicted within 3 %."""
    trials = [show(c, timed=timed) for c in (PLAIN, CHAINS[2], CHAINS[7])]
    shapes = [shape_of(config) for config in CHAINS.values()]
    expected = fit_cost_model(trials, shapes).expect(shapes)
    for i, config in enumerate(CHAINS.values()):
        assert expected.log_ratio[i] == pytest.approx(truth(config), abs=0.03)
        middle, low, high = expected.interval(i)
        assert low <= middle <= high
        assert low * 0.97 <= math.exp(truth(config)) <= high * 1.03


def test_time_outside_the_steps_is_told_from_them() -> None:
    """Prefill takes from every shape alike, so that faster steps gain less."""
    trials = [show(c, rest_ms=5.0) for c in (PLAIN, CHAINS[3])]
    shapes = [shape_of(CHAINS[6])]
    expected = fit_cost_model(trials, shapes).expect(shapes)
    assert expected.log_ratio[0] == pytest.approx(truth(CHAINS[6], rest_ms=5.0), abs=0.05)


def test_plain_decoding_is_expected_to_be_itself() -> None:
    """Its ratio is 1, for sure."""
    shapes = [shape_of(PLAIN), shape_of(CHAINS[4])]
    expected = fit_cost_model([show(PLAIN), show(CHAINS[4])], shapes).expect(shapes)
    assert expected.interval(0) == pytest.approx((1.0, 1.0, 1.0))


def test_an_untried_method_is_less_sure_than_a_tried_one() -> None:
    """What was measured of one method says little about another."""
    other = SpecConfig("STANDALONE", 4, 1, 5, "/s")
    shapes = [shape_of(CHAINS[4]), shape_of(other)]
    expected = fit_cost_model([show(PLAIN), show(CHAINS[3])], shapes).expect(shapes)
    assert expected.spread[1] > 2 * expected.spread[0]


def test_a_length_without_positions_is_enough() -> None:
    """An accept length alone is taken for an even rate."""
    shape, full = show(CHAINS[5])
    bare = Seen(full.loads, full.accept_length)
    shapes = [shape_of(CHAINS[3])]
    expected = fit_cost_model([show(PLAIN), (shape, bare)], shapes).expect(shapes)
    assert expected.accept_length[0] == pytest.approx(1 + 0.8 + 0.64 + 0.512, rel=0.05)


def test_a_throughput_alone_is_enough() -> None:
    """Without any acceptance the model still predicts, from the throughputs."""
    shape, full = show(CHAINS[5], timed=False)
    shapes = [shape, shape_of(CHAINS[4])]
    plain = show(PLAIN, timed=False)
    model = fit_cost_model([plain, (shape, Seen(full.loads))], shapes)
    assert math.isfinite(model.expect(shapes).log_ratio[1])


def test_expected_steps_are_the_mean_over_all_knees() -> None:
    """Where no knee is sure, no single one's times are taken for what is expected."""
    shapes = [shape_of(CHAINS[n]) for n in (2, 4, 6)]
    model = fit_cost_model([show(PLAIN), show(CHAINS[1]), show(CHAINS[8])], shapes)
    assert len(model.step_times.fits) > 1
    plain = shape_of(PLAIN)
    for place, shape in enumerate(shapes):
        logs = [
            math.log(model.step_times.time(shape, load)[0] / model.step_times.time(plain, load)[0])
            for load in LOADS
        ]
        expected = model.expect(shapes).step_ratio[place]
        assert expected == pytest.approx(math.exp(sum(logs) / len(logs)))
