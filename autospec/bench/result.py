"""What ``bench`` and ``compare`` found: what ``--json`` prints and ``-o`` keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autospec.config import SpecConfig
from autospec.evidence import Decision, Environment, Interval, WorkloadSummary, require
from autospec.measurement import Percentiles
from autospec.metrics import Slo
from autospec.schema import SCHEMA

__all__ = [
    "ArmResult",
    "BenchResult",
    "CompareResult",
    "LoadFigures",
    "Made",
    "Resolved",
    "Subject",
]

#: Settings as a server reports them.
Resolved = dict[str, int | float | str | bool | None]


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured: one server as it was asked for and as it resolved itself.

    Attributes:
        name: what the user called it: a configuration, a profile's path or an address.
        config: how it decodes.
        model: folder or repository of the target.
        resolved: the settings that matter as the server reported them, its version, KV capacity
            and admission limit among them.
        digest: fingerprint of the target; None for a server that someone else started.
        draft_digest: fingerprint of the draft model, where there is one and it could be read.
        environment: the machine; None for a server that someone else started, which may be
            anywhere.
        adjusted: one line for each setting that the server changed from what was asked.
    """

    name: str
    config: SpecConfig
    model: str
    resolved: Resolved
    digest: str | None = None
    draft_digest: str | None = None
    environment: Environment | None = None
    adjusted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """Figures of all passes at one load.

    Attributes:
        load: ``8`` requests in flight, or ``2.5/s`` for arrivals at a rate.
        throughputs: output tokens/s of each pass, in the order of their repeats.
        output_throughput: median, lowest and highest of them.
        requests: requests a pass.
        ttft_ms: time to the first token.
        tpot_ms: time per output token after the first.
        e2e_latency_ms: from sending a request to its last byte.
        chunk_gap_ms: gap between streamed chunks; a chunk may hold several tokens.
        accept_length: tokens a verify step, bonus token included; None without speculation.
        accept_rate_per_pos: share of verify steps whose first 1, 2, ... drafts were right.
        batch_size: mean running requests a decode step, as the server counts them.
        step_time_ms: mean time of a decode step, drafting included, as the server counts it.
        request_goodput: requests/s that met the SLO; None without one.
        slo_attainment: share of the requests that did.
        client_busy_share: highest share of a pass in which the load generator used its core.
    """

    load: str
    throughputs: tuple[float, ...]
    output_throughput: Interval
    requests: int
    ttft_ms: Percentiles | None = None
    tpot_ms: Percentiles | None = None
    e2e_latency_ms: Percentiles | None = None
    chunk_gap_ms: Percentiles | None = None
    accept_length: float | None = None
    accept_rate_per_pos: tuple[float, ...] = ()
    batch_size: float | None = None
    step_time_ms: float | None = None
    request_goodput: float | None = None
    slo_attainment: float | None = None
    client_busy_share: float = 0.0

    def __post_init__(self) -> None:
        require(bool(self.throughputs), "throughputs", "empty", "one figure a pass")
        require(min(self.throughputs) > 0, "throughputs", self.throughputs, "above 0")
        require(self.requests >= 1, "requests", self.requests, "at least 1")


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One server's figures.

    Attributes:
        subject: what was measured.
        loads: one a load.
        warnings: what makes the figures less trustworthy, one line each.
        launch_s: time to readiness of each launch; empty for a server that someone else started.
    """

    subject: Subject
    loads: tuple[LoadFigures, ...]
    warnings: tuple[str, ...] = ()
    launch_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        require(bool(self.loads), "loads", "empty", "one or more")


@dataclass(frozen=True, slots=True)
class Made:
    """How a result came to be: the command, when it began, its seed and how long it took."""

    command: str
    created: str
    seed: int
    duration_s: float


@dataclass(frozen=True, slots=True)
class BenchResult:
    """Everything ``autospec bench`` found out."""

    arm: ArmResult
    workload: WorkloadSummary
    made: Made
    slo: Slo | None = None
    kind: Literal["bench"] = "bench"
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class CompareResult:
    """Everything ``autospec compare`` found out; each ratio is A's throughput over B's.

    Attributes:
        a: the first arm.
        b: the second arm.
        workload: what both were sent.
        made: how it came to be.
        ratio: over all loads, with its interval.
        decision: what A is against B.
        reason: why the comparison ended and what that says, in one sentence.
        loads: ratio by load.
        pairs: passes of each arm at each load.
        order: what alternated: single passes, whole launches, or nothing.
        same: whether both arms are the same server or the same launch: an A/A test.
        unfair: differences that were allowed by force, one line each.
        differs: other settings that the servers resolved differently, one line each.
        slo: limits that the requests were held to.
    """

    a: ArmResult
    b: ArmResult
    workload: WorkloadSummary
    made: Made
    ratio: Interval
    decision: Decision
    reason: str
    loads: dict[str, Interval]
    pairs: int
    order: Literal["passes", "launches", "none"]
    same: bool = False
    unfair: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()
    slo: Slo | None = None
    kind: Literal["compare"] = "compare"
    schema: int = SCHEMA
