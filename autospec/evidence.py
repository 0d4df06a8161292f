"""What a profile rests on: the model, the machine, the workload and the measured rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autospec.config import SpecConfig
from autospec.errors import SchemaError

__all__ = [
    "Acceptance",
    "Decision",
    "Environment",
    "Failure",
    "Interval",
    "Point",
    "Provenance",
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
    """

    model: str
    digest: str
    architecture: str
    draft_digest: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the figures hold. ``device`` to ``tp_size`` must agree before a profile is used."""

    device: str
    accelerator: str
    accelerator_count: int
    sglang: str
    dtype: str
    tp_size: int
    torch: str | None = None
    driver: str | None = None
    python: str | None = None
    autospec: str | None = None
    cpu_count: int | None = None
    memory_gib: float | None = None


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
        ttft_ms: median time to the first token.
        tpot_ms: median time per output token.
    """

    config: SpecConfig
    part: Literal["tune", "confirm"]
    concurrency: int
    output_throughput: Interval
    repeats: int
    vs_plain: Interval | None = None
    accept_length: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None

    def __post_init__(self) -> None:
        require(self.concurrency >= 1, "concurrency", self.concurrency, "at least 1")
        require(self.repeats >= 1, "repeats", self.repeats, "at least 1")
        require(self.output_throughput.low > 0, "output_throughput", self.output_throughput, ">0")
        if self.accept_length is not None:
            require(self.accept_length >= 1, "accept_length", self.accept_length, "at least 1")


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
