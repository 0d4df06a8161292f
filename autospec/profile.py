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
from autospec.evidence import (
    Acceptance,
    Decision,
    Environment,
    Failure,
    Interval,
    Noise,
    Point,
    Provenance,
    StepTime,
    Target,
    WorkloadSummary,
    require,
)
from autospec.fidelity import Lossless

__all__ = [
    "BINDING_FIELDS",
    "STUDY_PROFILE",
    "ArgValue",
    "Choice",
    "Profile",
    "Verdict",
    "load_profile",
    "save_profile",
]

#: What a server argument may be.
ArgValue = bool | int | float | str | tuple[int | float | str, ...]

#: The profile's name inside its study's folder.
STUDY_PROFILE: Final = "profile.yaml"

#: The fields of ``Environment`` in which a difference makes a profile's figures another machine's.
BINDING_FIELDS: Final = (
    "device",
    "accelerator",
    "accelerator_count",
    "sglang",
    "dtype",
    "tp_size",
    "cpu_threads",
    "cpu_kernels",
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the best configuration found beats plain decoding here.

    Attributes:
        decision: of the best configuration against plain decoding.
        best: the best configuration that was found; None when no candidate ran.
        vs_plain: geometric mean of the ratios over the concurrency levels.
        part: the prompts it was decided on.
        reason: one sentence for a person.
        differs_from_plain: settings, KV cache capacity among them, that the two servers resolved
            differently beside the speculation itself: ``name: best / plain``.
    """

    decision: Decision
    reason: str
    part: Literal["tune", "confirm"]
    best: SpecConfig | None = None
    vs_plain: Interval | None = None
    differs_from_plain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The one configuration to deploy, with all that a server is started with.

    Attributes:
        config: plain decoding unless the verdict is ``faster``.
        server_args: keyword arguments of ``sglang.Engine``.
        resolved: what the measured server reported of its own settings.
    """

    config: SpecConfig
    server_args: dict[str, ArgValue]
    resolved: dict[str, int | float | str | bool | None]

    def __post_init__(self) -> None:
        speculates = "speculative_algorithm" in self.server_args
        if self.config.is_plain == speculates:
            raise SchemaError(f"config is {self.config} but server_args say otherwise")


@dataclass(frozen=True, slots=True)
class Profile:
    """Everything ``tune`` found out, for one model on one machine and one workload.

    ``schedule`` gives the depth of drafting that was best at each measured concurrency, 0 for
    plain decoding. ``noise`` and ``lossless`` are None where they were not measured. ``warnings``
    say what makes figures less trustworthy, a line each. The other fields are described with their
    types.
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
    noise: Noise | None = None
    lossless: Lossless | None = None
    step_times: tuple[StepTime, ...] = ()
    warnings: tuple[str, ...] = ()
    schema: int = schema.SCHEMA

    def __post_init__(self) -> None:
        require(bool(self.baseline), "baseline", "empty", "plain decoding's points")
        for concurrency, depth in self.schedule.items():
            require(concurrency >= 1 and depth >= 0, "schedule", {concurrency: depth}, "positive")
        if not self.choice.config.is_plain and self.verdict.decision != "faster":
            raise SchemaError(
                f"choice is {self.choice.config} though the verdict is {self.verdict.decision}; "
                "it must be PLAIN"
            )

    def server_args(self) -> dict[str, Any]:
        """Keyword arguments for ``sglang.Engine(**profile.server_args())``."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in self.choice.server_args.items()
        }

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
