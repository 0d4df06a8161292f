"""Step times by batch size are those of all steps of a launch."""

from __future__ import annotations

import pytest

from autospec.measure.steps import StepTime, step_times
from autospec.measurement import Run, ServerDelta


def run(concurrency: int, server: ServerDelta | None, rate: float | None = None) -> Run:
    """A pass with these counts."""
    return Run("tune", concurrency, 0, 9.0, (0.0, 1.0), 1.0, (), server, request_rate=rate)


def test_passes_at_one_load_are_one_row_weighted_by_their_steps() -> None:
    """Three quarters of the steps lie in the second pass; levels come in order, rates last."""
    runs = [
        run(8, ServerDelta(10, 8.0, 40.0, 80)),
        run(4, ServerDelta(10, 3.0, 20.0, 30)),
        run(4, ServerDelta(30, 4.0, 24.0, 120)),
        run(5, ServerDelta(10, 2.5, 18.0, 25), rate=1.5),
        run(7, ServerDelta(10, 3.5, 22.0, 35), rate=1.5),
    ]
    assert step_times(runs) == (
        StepTime(4, None, 3.75, 23.0, None, 40),
        StepTime(8, None, 8.0, 40.0, None, 10),
        StepTime(7, 1.5, 3.0, 20.0, None, 20),
    )


def test_slopes_count_by_how_much_the_batch_size_varied() -> None:
    """A pass at one batch size says nothing of the slope, one with twice the spread four times."""
    runs = [
        run(4, ServerDelta(10, 4.0, 20.0, 40, 0.0, None)),
        run(4, ServerDelta(10, 3.5, 20.0, 40, 0.5, 1.0)),
        run(4, ServerDelta(10, 3.0, 20.0, 40, 1.0, 2.0)),
    ]
    (row,) = step_times(runs)
    assert row.slope_ms == pytest.approx((1.0 + 4 * 2.0) / 5)


def test_a_server_without_counts_has_no_rows() -> None:
    """Nothing is made up."""
    assert step_times([run(4, None)]) == ()
    assert step_times([]) == ()
