"""What a measurement is made of: one record a request, one run a pass, one measurement a config.

All are immutable, and ``schema.dump``/``schema.load`` keep them at rest. No text of a prompt or an
answer is in them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from autospec.config import SpecConfig
from autospec.errors import SchemaError, WorkloadError

__all__ = [
    "DecodeMoments",
    "Measurement",
    "Percentiles",
    "Request",
    "RequestRecord",
    "Run",
    "Sampling",
    "ServerDelta",
]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the server picks tokens. The end-of-text token always ends an answer.

    Raises:
        WorkloadError: a value out of its range.
    """

    temperature: float = 0.0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise WorkloadError(f"temperature is {self.temperature}, must be from 0 to 2")
        if not 0 < self.top_p <= 1:
            raise WorkloadError(f"top_p is {self.top_p}, must be above 0 and at most 1")


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt as it goes to the server: token ids, so that every arm sends the same."""

    prompt: int
    input_ids: tuple[int, ...]
    max_new_tokens: int
    label: str | None = None
    sampling: Sampling = Sampling()


@dataclass(frozen=True, slots=True)
class DecodeMoments:
    """The server's cumulative counters; two readings differ by what happened between.

    Steps that follow an idle gap or a prefill are not among its decode steps.

    Attributes:
        num_steps: decode steps.
        sum_batch_size: running requests, summed over steps.
        sum_step_us: step times in microseconds, summed over steps.
        sum_batch_size_sq: squares of the running requests, summed over steps.
        sum_batch_step_us: running requests times step time in microseconds, summed over steps.
        sum_tokens: output tokens of decode steps.
        sum_prefill_tokens: prompt tokens computed, not found in the prefix cache; None where the
            server does not count them. Its own health checks are not among them.
        num_unfinished: requests that it had when it counted; above 0, their last steps may miss.
    """

    num_steps: int
    sum_batch_size: float
    sum_step_us: float
    sum_batch_size_sq: float
    sum_batch_step_us: float
    sum_tokens: float
    sum_prefill_tokens: int | None = None
    num_unfinished: int = 0


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as the client saw it and as the server counted it.

    Times are seconds on one monotonic clock shared by all records of a run.

    Attributes:
        prompt: index of the prompt in its workload.
        label: the prompt's class, if it has one.
        start_s: when the request was sent.
        end_s: when its last byte, or its error, arrived.
        chunk_s: arrival time of each streamed chunk that carried new tokens.
        chunk_tokens: output tokens received up to and including each of those chunks.
        prompt_tokens: tokens of the prompt.
        completion_tokens: tokens of the answer, the one from prefill included.
        cached_tokens: prompt tokens served from the prefix cache.
        finish_reason: ``stop``, ``length``, ..., or empty when it failed.
        verify_ct: verify steps, or None where the server did not speculate on this request.
        num_correct_drafts: drafts found right, without bonus tokens.
        correct_histogram: item *i* is the number of verify steps with *i* correct drafts.
        num_retractions: times the server threw the request's cache away and began anew.
        server_latency_s: from its arrival to its end by the server's own clock; None where the
            server does not say.
        error: one line when the request failed.
    """

    prompt: int
    start_s: float
    end_s: float
    label: str | None = None
    chunk_s: tuple[float, ...] = ()
    chunk_tokens: tuple[int, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: str = ""
    verify_ct: int | None = None
    num_correct_drafts: int = 0
    correct_histogram: tuple[int, ...] = ()
    num_retractions: int = 0
    server_latency_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ServerDelta:
    """What the server itself counted during a pass: differences of its cumulative counters.

    Decode steps that follow an idle gap or a prefill are left out, so ``num_tokens`` is below what
    was received; the means and the slope are those of undisturbed steps.

    Attributes:
        num_steps: decode steps (forward passes of the target in decode or verify mode).
        batch_size: mean running requests a decode step.
        step_time_ms: mean time of one decode step, drafting included.
        num_tokens: output tokens of decode steps.
        batch_size_stdev: standard deviation of the running requests over steps.
        step_time_slope_ms: by how much a step takes longer for each further running request, in
            ms: ``cov(batch size, step time) / var(batch size)`` over steps; None where the batch
            size did not vary.
        num_prefill_tokens: prompt tokens computed; None where the server does not count them.
    """

    num_steps: int
    batch_size: float
    step_time_ms: float
    num_tokens: int
    batch_size_stdev: float = 0.0
    step_time_slope_ms: float | None = None
    num_prefill_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One timed pass over prompts, at one concurrency or at one rate of arrival.

    Attributes:
        part: ``tune`` or ``confirm``.
        concurrency: requests kept in flight by the client; the most that were in flight at once
            where they arrived at a rate.
        repeat: number of the pass; the same repeat of two arms sent the same prompts.
        output_throughput: output tokens/s in the steady-state window.
        window_s: begin and end of the window on the records' clock.
        duration_s: wall time of the pass, without its warm-up.
        records: one a request.
        server: the server's own counts, where it keeps them.
        client_busy_share: share of the pass in which the load generator's thread used its core.
        warnings: what makes the number less trustworthy, one line each.
        request_rate: requests/s of a pass whose requests arrived at random at a rate; None for a
            closed loop.
    """

    part: str
    concurrency: int
    repeat: int
    output_throughput: float
    window_s: tuple[float, float]
    duration_s: float
    records: tuple[RequestRecord, ...]
    server: ServerDelta | None = None
    client_busy_share: float = 0.0
    warnings: tuple[str, ...] = ()
    request_rate: float | None = None

    @property
    def load(self) -> str:
        """The load in words: ``concurrency 4`` or ``2.5 requests/s``."""
        if self.request_rate is None:
            return f"concurrency {self.concurrency}"
        return f"{self.request_rate:g} requests/s"

    @property
    def label(self) -> str:
        """Which pass it is, in words: ``tune, concurrency 4, repeat 0``."""
        return f"{self.part}, {self.load}, repeat {self.repeat}"


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Three percentiles of one quantity, in its unit."""

    p50: float
    p90: float
    p99: float

    def __post_init__(self) -> None:
        if not self.p50 <= self.p90 <= self.p99:
            raise SchemaError(f"percentiles {self.p50}, {self.p90}, {self.p99} must not fall")


@dataclass(frozen=True, slots=True)
class Measurement:
    """All runs of one configuration from one server launch.

    Attributes:
        config: what was asked for.
        runs: in the order in which they were made.
        launch_s: time from starting the server to its readiness.
        duration_s: launch, passes and stop together.
        resolved: the server's own values of the settings that matter, as it reported them.
        adjusted: one line for each setting that the server changed from what was asked.
        warnings: what makes the numbers less trustworthy, one line each.
        stopped: why passes are missing that were planned, one line, or nothing.
        launched: what the server was started with, where it ran several depths of a chain in one
            launch; None where it was started with ``config`` itself.
    """

    config: SpecConfig
    runs: tuple[Run, ...]
    launch_s: float
    duration_s: float
    resolved: dict[str, int | float | str | bool | None] = field(default_factory=dict)
    adjusted: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    stopped: str = ""
    launched: SpecConfig | None = None

    def throughputs(self, concurrency: int, part: str = "tune") -> tuple[float, ...]:
        """Output tokens/s of each closed-loop pass at one concurrency, ordered by repeat."""
        asked = (part, concurrency, None)
        chosen = [r for r in self.runs if (r.part, r.concurrency, r.request_rate) == asked]
        return tuple(r.output_throughput for r in sorted(chosen, key=lambda r: r.repeat))

    def records(self, part: str | None = None) -> tuple[RequestRecord, ...]:
        """The records of all passes, or of those over one part."""
        return tuple(
            record for run in self.runs if part in (None, run.part) for record in run.records
        )
