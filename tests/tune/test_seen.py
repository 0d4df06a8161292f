"""What a measurement shows a sampler."""

from __future__ import annotations

import math

import pytest

from autospec.config import SpecConfig
from autospec.measurement import Measurement, RequestRecord, Run, ServerDelta
from autospec.tune.seen import seen_of

CONFIG = SpecConfig.parse("EAGLE3 steps=2 topk=1 tokens=3 draft=/e")


def run(load: int, repeat: int, speed: float, server: ServerDelta | None = None) -> Run:
    """A pass of one request with ten verify steps."""
    record = RequestRecord(
        0, 0.0, 1.0, verify_ct=10, num_correct_drafts=12, correct_histogram=(3, 2, 5)
    )
    return Run("tune", load, repeat, speed, (0.0, 1.0), 1.0, (record,), server)


def test_loads_rates_and_times_are_those_of_all_passes() -> None:
    """Median throughputs, step times weighted by steps, acceptance over all loads."""
    runs = (
        run(1, 0, 100.0, ServerDelta(10, 1.0, 10.0, 20)),
        run(1, 1, 110.0, ServerDelta(30, 1.0, 12.0, 60)),
        run(1, 2, 90.0),
        run(8, 0, 500.0),
    )
    seen = seen_of(Measurement(CONFIG, runs, launch_s=20.0, duration_s=50.0))
    one, eight = seen.loads
    assert (one.load, one.throughput, one.batch_size) == (1, 100.0, 1.0)
    assert one.step_time_ms == pytest.approx(11.5)
    assert (eight.load, eight.step_time_ms) == (8, None)
    assert seen.accept_length == pytest.approx(2.2)
    assert seen.rates == pytest.approx((0.7, 0.5))
    assert (seen.verify_ct, seen.launch_s, seen.passes_s) == (40, 20.0, 30.0)


def test_the_error_is_that_of_the_mean_over_loads() -> None:
    """Passes that agree have none; a load with one pass does not say."""
    exact = seen_of(Measurement(CONFIG, tuple(run(1, i, 100.0) for i in range(3)), 1.0, 2.0))
    assert exact.error == 0
    speeds = [100.0, 100.0 * math.exp(0.03), 100.0 * math.exp(-0.03)]
    runs = tuple(run(load, i, speed) for load in (1, 8) for i, speed in enumerate(speeds))
    noisy = seen_of(Measurement(CONFIG, runs, 1.0, 2.0))
    assert noisy.error == pytest.approx(math.hypot(0.03, 0.03) / math.sqrt(3) / 2)


def test_other_parts_and_rates_do_not_count() -> None:
    """A search sees the closed-loop passes over its own prompts."""
    other = Run("confirm", 4, 0, 50.0, (0.0, 1.0), 1.0, ())
    seen = seen_of(Measurement(CONFIG, (run(1, 0, 100.0), other), 1.0, 2.0))
    assert [load.load for load in seen.loads] == [1]
