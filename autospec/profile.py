"""The profile: what was measured, what was decided, and how to start a server from it.

One YAML file, below 300 lines, written by ``autospec tune`` and read by ``autospec serve``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from autospec import schema
from autospec.argv import to_argv
from autospec.config import SpecConfig
from autospec.errors import MismatchError, SchemaError

__all__ = [
    "Acceptance",
    "Choice",
    "Decision",
    "Environment",
    "Failure",
    "Interval",
    "Point",
    "Profile",
    "Provenance",
    "Target",
    "Verdict",
    "WorkloadSummary",
    "load_profile",
    "save_profile",
]

#: What a server argument may be.
ArgValue = bool | int | float | str | tuple[int | float | str, ...]

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


#: The fields of ``Environment`` in which a difference makes a profile's figures another machine's.
BINDING_FIELDS: Final = ("device", "accelerator", "accelerator_count", "sglang", "dtype", "tp_size")


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
        _require(self.concurrency >= 1, "concurrency", self.concurrency, "at least 1")
        _require(self.repeats >= 1, "repeats", self.repeats, "at least 1")
        _require(self.output_throughput.low > 0, "output_throughput", self.output_throughput, ">0")
        if self.accept_length is not None:
            _require(self.accept_length >= 1, "accept_length", self.accept_length, "at least 1")


@dataclass(frozen=True, slots=True)
class Failure:
    """A configuration that did not run, and why."""

    config: SpecConfig
    error: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the best configuration found beats plain decoding here.

    Attributes:
        decision: of the best configuration against plain decoding.
        best: the best configuration that was found; None when no candidate ran.
        vs_plain: geometric mean of the ratios over the concurrency levels.
        part: the prompts it was decided on.
        reason: one sentence for a person.
    """

    decision: Decision
    reason: str
    part: Literal["tune", "confirm"]
    best: SpecConfig | None = None
    vs_plain: Interval | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The one configuration to deploy, with all that a server is started with.

    Attributes:
        config: plain decoding unless the verdict is ``faster``.
        server_args: keyword arguments of ``sglang.Engine``.
        resolved: what the measured server reported of its own settings.
        differs_from_plain: resolved settings in which this arm and plain decoding differed.
    """

    config: SpecConfig
    server_args: dict[str, ArgValue]
    resolved: dict[str, int | float | str | bool | None]
    differs_from_plain: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        speculates = "speculative_algorithm" in self.server_args
        if self.config.is_plain == speculates:
            raise SchemaError(f"config is {self.config} but server_args say otherwise")


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


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything ``tune`` found out, for one model on one machine and one workload.

    ``schedule`` gives the depth of drafting that was best at each measured concurrency, 0 for
    plain decoding. The other fields are described with their types.
    """

    target: Target
    environment: Environment
    workload: WorkloadSummary
    verdict: Verdict
    choice: Choice
    baseline: tuple[Point, ...]
    points: tuple[Point, ...]
    schedule: dict[int, int]
    acceptance: tuple[Acceptance, ...]
    failed: tuple[Failure, ...]
    provenance: Provenance
    schema: int = schema.SCHEMA

    def __post_init__(self) -> None:
        _require(bool(self.baseline), "baseline", "empty", "plain decoding's points")
        for concurrency, depth in self.schedule.items():
            _require(concurrency >= 1 and depth >= 0, "schedule", {concurrency: depth}, "positive")
        if not self.choice.config.is_plain and self.verdict.decision != "faster":
            raise SchemaError(
                f"choice is {self.choice.config} though the verdict is {self.verdict.decision}; "
                "it must be PLAIN"
            )

    def server_args(self) -> dict[str, Any]:
        """Keyword arguments for ``sglang.Engine(**profile.server_args())``."""
        return dict(self.choice.server_args)

    def to_argv(self) -> list[str]:
        """The same as flags of ``python -m sglang.launch_server``."""
        return to_argv(self.choice.server_args)

    def with_model(self, model: str) -> Profile:
        """The same profile for a model that lies elsewhere."""
        arguments = {**self.choice.server_args, "model_path": model}
        return dataclasses.replace(
            self,
            target=dataclasses.replace(self.target, model=model),
            choice=dataclasses.replace(self.choice, server_args=arguments),
        )

    def require_match(self, target_digest: str, environment: Environment) -> None:
        """Refuse another model, machine or engine than the one measured.

        Raises:
            MismatchError: naming the first field that differs and both values.
        """
        pairs = [("model digest", self.target.digest, target_digest)] + [
            (name, getattr(self.environment, name), getattr(environment, name))
            for name in BINDING_FIELDS
        ]
        for name, measured, here in pairs:
            if measured != here:
                raise MismatchError(
                    f"the profile was measured with {name} {measured!r}, here it is {here!r}; "
                    "tune again, or use --force"
                )


def load_profile(path: str | Path) -> Profile:
    """Read a profile.

    Raises:
        SchemaError: the file is missing, not YAML, of a newer schema, or has an unknown key, a
            wrong type or a value out of range; the message names the field's path.
    """
    path = Path(path)
    return schema.load(Profile, schema.read_yaml(path), str(path))


def save_profile(path: Path, profile: Profile) -> None:
    """Write a profile atomically.

    Raises:
        StorageError: it could not be written; an older file is untouched.
    """
    document = schema.dump(profile)
    schema.write_yaml(path, {"schema": document.pop("schema"), **document})


def _require(holds: bool, name: str, value: object, right: str) -> None:
    if not holds:
        raise SchemaError(f"{name} is {value}, must be {right}")
