"""What a profile rests on: the model, the machine, the workload and the measured rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autospec.config import SpecConfig
from autospec.errors import SchemaError
from autospec.measurement import Percentiles

__all__ = [
    "Acceptance",
    "Decision",
    "Environment",
    "Failure",
    "Interval",
    "Noise",
    "NoiseAtLoad",
    "Point",
    "Provenance",
    "StepTime",
    "Target",
    "WorkloadSummary",
    "require",
]

#: Outcomes of a comparison with plain decoding.
Decision = Literal["faster", "slower", "equivalent", "inconclusive"]


@dataclass(frozen=True, slots=True)
class Target:
    """The model served.

    Attributes:
        model: folder or repository it was measured from.
        digest: fingerprint of its configuration and weights.
        architecture: the first name in its ``architectures``.
        draft_digest: fingerprint of the chosen draft model, if there is one.
        corpus_digest: SHA-256 of the n-gram corpus that it drafts from, if there is one.
    """

    model: str
    digest: str
    architecture: str
    draft_digest: str | None = None
    corpus_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the figures hold: the machine and the software, whatever configuration runs on them.

    What a server resolves for one configuration (attention backend, page size, limits) stands with
    that configuration; models and their digests stand in ``Target``.

    Attributes:
        device: ``cuda``, ``cpu``, ...
        accelerator: model name of the GPU, or of the CPU when that is the device.
        accelerator_count: visible GPUs, or 1 for a CPU.
        sglang: the engine's version.
        dtype: of weights and computing, as SGLang names it.
        tp_size: tensor parallel size.
        cpu_threads: threads that a server computes with; None unless the device is a CPU.
        cpu_kernels: whose kernels a server on a CPU uses; None on other devices.
        torch: PyTorch's version, with what it was built for.
        driver: the GPU driver's version.
        python: of the process that starts servers.
        autospec: this package's version.
        cpu: model name of the host's processor; None where it is the accelerator.
        cpu_count: logical cores that a server may use.
        cpu_governor: how the kernel sets their frequency; None where it does not say.
        memory_gib: memory of one GPU, or of the machine for a CPU.
        os: the system's own name for itself.
        kernel: its kernel and release.
    """

    device: str
    accelerator: str
    accelerator_count: int
    sglang: str
    dtype: str
    tp_size: int
    cpu_threads: int | None = None
    cpu_kernels: Literal["autospec", "native"] | None = None
    torch: str | None = None
    driver: str | None = None
    python: str | None = None
    autospec: str | None = None
    cpu: str | None = None
    cpu_count: int | None = None
    cpu_governor: str | None = None
    memory_gib: float | None = None
    os: str | None = None
    kernel: str | None = None


@dataclass(frozen=True, slots=True)
class WorkloadSummary:
    """What was sent, without any text of it.

    Attributes:
        name: the prompt file's name.
        fingerprint: digest over all prompts.
        prompts: prompts by part (``warmup``, ``tune``, ``confirm``).
        classes: prompts by class label; empty without labels.
        concurrencies: the loads measured, as requests in flight.
        temperature: sampling temperature.
    """

    name: str
    fingerprint: str
    prompts: dict[str, int]
    classes: dict[str, int]
    concurrencies: tuple[int, ...]
    temperature: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the interval it was measured within."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise SchemaError(f"value {self.value} lies outside {self.low} to {self.high}")

    def __str__(self) -> str:
        return f"{self.value:.2f}x ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration at one concurrency on one part of the prompts.

    Attributes:
        config: what ran.
        part: ``tune`` or ``confirm``.
        concurrency: requests in flight.
        output_throughput: tokens/s: median, lowest and highest of the repeats.
        repeats: number of passes.
        vs_plain: ratio to plain decoding's passes with its interval; None for plain itself.
        accept_length: tokens per verify step, bonus token included; None without speculation.
        ttft_ms: time to the first token.
        tpot_ms: time per output token after the first.
        e2e_latency_ms: from sending a request to its last byte.
        request_goodput: requests/s that met the SLO, median of the repeats; None without an SLO.
        launched: what the server was started with, where several depths of a chain were measured in
            one launch; None for a launch of ``config`` itself.
    """

    config: SpecConfig
    part: Literal["tune", "confirm"]
    concurrency: int
    output_throughput: Interval
    repeats: int
    vs_plain: Interval | None = None
    accept_length: float | None = None
    ttft_ms: Percentiles | None = None
    tpot_ms: Percentiles | None = None
    e2e_latency_ms: Percentiles | None = None
    request_goodput: float | None = None
    launched: SpecConfig | None = None

    def __post_init__(self) -> None:
        require(self.concurrency >= 1, "concurrency", self.concurrency, "at least 1")
        require(self.repeats >= 1, "repeats", self.repeats, "at least 1")
        require(self.output_throughput.low > 0, "output_throughput", self.output_throughput, ">0")
        if self.accept_length is not None:
            require(self.accept_length >= 1, "accept_length", self.accept_length, "at least 1")


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of a decode step as the server counts it, drafting included.

    Attributes:
        config: what ran.
        concurrency: requests in flight at the client.
        batch_size: mean running requests a step.
        step_time_ms: mean time of a step.
        num_steps: steps that the means are over.
        slope_ms: by how much a step takes longer for each further running request; None where the
            batch size did not vary.
    """

    config: SpecConfig
    concurrency: int
    batch_size: float
    step_time_ms: float
    num_steps: int
    slope_ms: float | None = None

    def __post_init__(self) -> None:
        require(self.num_steps >= 1, "num_steps", self.num_steps, "at least 1")
        require(self.step_time_ms > 0, "step_time_ms", self.step_time_ms, "above 0")


@dataclass(frozen=True, slots=True)
class NoiseAtLoad:
    """Two launches of plain decoding at one concurrency.

    Attributes:
        concurrency: requests in flight.
        ratio: throughput of the second launch over the first's.
        spread: coefficient of variation of the passes of one launch, a fraction.
    """

    concurrency: int
    ratio: Interval
    spread: float


@dataclass(frozen=True, slots=True)
class Noise:
    """What this machine does to two launches of the same server on the same prompts.

    Attributes:
        ratio: the objective's figure of the second launch over the first's, geometric mean over the
            loads.
        floor: absolute logarithm of a ratio below which a difference may be the machine's own.
        repeats: passes of each launch at each load.
        loads: the same at each concurrency.
    """

    ratio: Interval
    floor: float
    repeats: int
    loads: tuple[NoiseAtLoad, ...]

    def __post_init__(self) -> None:
        require(self.floor >= 0, "floor", self.floor, "at least 0")

    def __str__(self) -> str:
        low, high = self.ratio.low - 1, self.ratio.high - 1
        return (
            f"two launches of plain decoding differed by {self.ratio.value - 1:+.1%} "
            f"({low:+.1%} to {high:+.1%})"
        )


@dataclass(frozen=True, slots=True)
class Failure:
    """A configuration that did not run, and why."""

    config: SpecConfig
    error: str


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Acceptance of one configuration, over all prompts or one class.

    Attributes:
        config: what ran.
        label: the class; None for all prompts.
        accept_length: tokens per verify step, bonus token included.
        accept_rate_per_pos: share of verify steps whose first 1, 2, ... drafts were all right.
    """

    config: SpecConfig
    accept_length: float
    accept_rate_per_pos: tuple[float, ...]
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """How the profile came to be."""

    command: str
    created: str
    seed: int
    sampler: str
    trials: int
    duration_s: float
    stopped_because: str


def require(holds: bool, name: str, value: object, right: str) -> None:
    """Refuse a value that breaks a condition.

    Raises:
        SchemaError: naming the value and what would be right.
    """
    if not holds:
        raise SchemaError(f"{name} is {value}, must be {right}")
