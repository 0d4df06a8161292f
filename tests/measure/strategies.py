"""Hypothesis strategies for records and runs."""

from __future__ import annotations

from hypothesis import strategies as st

from autospec.measurement import Measurement, RequestRecord, Run, ServerDelta
from tests.strategies import spec_configs

seconds = st.floats(0, 1000, allow_nan=False)
counts = st.integers(0, 10_000)


@st.composite
def request_records(draw: st.DrawFn) -> RequestRecord:
    """A request with its chunks in order, in success or failure."""
    chunk_s = sorted(draw(st.lists(seconds, max_size=6)))
    start_s = draw(st.floats(0, chunk_s[0] if chunk_s else 1000))
    gained = draw(st.lists(st.integers(1, 8), min_size=len(chunk_s), max_size=len(chunk_s)))
    return RequestRecord(
        prompt=draw(counts),
        start_s=start_s,
        end_s=max([start_s, *chunk_s]) + draw(st.floats(0, 10)),
        label=draw(st.none() | st.text(max_size=5)),
        chunk_s=tuple(chunk_s),
        chunk_tokens=tuple(sum(gained[: place + 1]) for place in range(len(gained))),
        prompt_tokens=draw(counts),
        completion_tokens=sum(gained),
        cached_tokens=draw(counts),
        finish_reason=draw(st.sampled_from(["", "stop", "length"])),
        verify_ct=draw(st.none() | counts),
        num_correct_drafts=draw(counts),
        correct_histogram=tuple(draw(st.lists(counts, max_size=5))),
        num_retractions=draw(st.integers(0, 3)),
        server_latency_s=draw(st.none() | seconds),
        error=draw(st.none() | st.text(max_size=10)),
    )


server_deltas = st.builds(
    ServerDelta,
    num_steps=st.integers(1, 1000),
    batch_size=seconds,
    step_time_ms=seconds,
    num_tokens=counts,
    batch_size_stdev=seconds,
    step_time_slope_ms=st.none() | seconds,
    num_prefill_tokens=st.none() | counts,
)

runs = st.builds(
    Run,
    part=st.sampled_from(["tune", "confirm"]),
    concurrency=st.integers(1, 64),
    repeat=st.integers(0, 9),
    output_throughput=seconds,
    window_s=st.tuples(seconds, seconds),
    duration_s=seconds,
    records=st.lists(request_records(), max_size=3).map(tuple),
    server=st.none() | server_deltas,
    client_busy_share=st.floats(0, 1),
    warnings=st.lists(st.text(max_size=10), max_size=2).map(tuple),
    request_rate=st.none() | st.floats(0.1, 100),
)

measurements = st.builds(
    Measurement,
    config=spec_configs(),
    runs=st.lists(runs, max_size=3).map(tuple),
    launch_s=seconds,
    duration_s=seconds,
    resolved=st.dictionaries(
        st.text(max_size=5),
        st.none() | st.booleans() | st.integers() | seconds | st.text(max_size=5),
        max_size=3,
    ),
    adjusted=st.lists(st.text(max_size=10), max_size=2).map(tuple),
    warnings=st.lists(st.text(max_size=10), max_size=2).map(tuple),
)
