"""Measurements survive being stored."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given

from autospec import schema
from autospec.config import PLAIN
from autospec.errors import SchemaError, WorkloadError
from autospec.measurement import Measurement, RequestRecord, Run, Sampling
from tests.measure.strategies import measurements


@given(measurement=measurements)
def test_a_measurement_read_back_from_json_is_the_same(measurement: Measurement) -> None:
    """Writing as JSON and reading loses nothing."""
    stored = json.loads(json.dumps(schema.dump(measurement)))
    assert schema.load(Measurement, stored, "trial") == measurement


@given(measurement=measurements)
def test_a_stored_measurement_with_an_unknown_key_is_refused(measurement: Measurement) -> None:
    """A key that nobody wrote is an error that names it."""
    stored = schema.dump(measurement) | {"speed": 1}
    with pytest.raises(SchemaError, match="unknown key 'speed'"):
        schema.load(Measurement, stored, "trial")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": 2.1}, "temperature is 2.1"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
    ],
)
def test_sampling_out_of_range_is_refused(arguments: dict[str, float], message: str) -> None:
    """The error names the value."""
    with pytest.raises(WorkloadError, match=message):
        Sampling(**arguments)


def test_throughputs_and_records_are_kept_apart_by_part_and_level() -> None:
    """Figures of the level and part asked for, in the order of repeats; records as made.

    A pass at a rate is none of a level, however many requests were in flight.
    """

    def run(part: str, concurrency: int, repeat: int, throughput: float) -> Run:
        records = (RequestRecord(round(throughput), 0.0, 1.0),)
        return Run(part, concurrency, repeat, throughput, (0.0, 1.0), 1.0, records)

    runs = (
        run("tune", 8, 1, 81.0),
        run("tune", 1, 0, 10.0),
        run("confirm", 8, 0, 99.0),
        run("tune", 8, 0, 80.0),
        replace(run("tune", 8, 2, 70.0), request_rate=3.0),
    )
    measurement = Measurement(PLAIN, runs, launch_s=1.0, duration_s=1.0)
    assert measurement.throughputs(8) == (80.0, 81.0)
    assert measurement.throughputs(8, part="confirm") == (99.0,)
    assert measurement.throughputs(2) == ()
    assert [r.prompt for r in measurement.records()] == [81, 10, 99, 80, 70]
    assert [r.prompt for r in measurement.records("confirm")] == [99]
    assert [run.label for run in runs[3:]] == [
        "tune, concurrency 8, repeat 0",
        "tune, 3 requests/s, repeat 2",
    ]
