"""The profile: what was measured, what was decided, and how to start a server from it.

One YAML file, below 300 lines, written by ``autospec tune`` and read by ``autospec serve``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from autospec import schema
from autospec.argv import to_argv
from autospec.breakdown import Stopped, Winner
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
        vs_plain: geometric mean over the concurrency levels of the objective's ratios.
        part: the prompts it was decided on.
        reason: one sentence for a person.
        differs_from_plain: settings, KV cache capacity among them, that the two servers resolved
            differently beside the speculation itself: ``name: best / plain``.
        objective: what ``decision`` and ``vs_plain`` are about: ``throughput``, ``latency`` or
            ``goodput``.
        slo: the limits of ``goodput``.
    """

    decision: Decision
    reason: str
    part: Literal["tune", "confirm"]
    best: SpecConfig | None = None
    vs_plain: Interval | None = None
    differs_from_plain: tuple[str, ...] = ()
    objective: str = "throughput"
    slo: str | None = None


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
    plain decoding. ``winners`` says what would be best for each load and each class alone, and
    ``stopped`` lists the candidates that fell behind early. ``noise`` and ``lossless`` are None
    where they were not measured. ``warnings`` say what makes figures less trustworthy, a line each.
    ``path`` is the file it was loaded from, and stands in no file. The other fields are described
    with their types.
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
    winners: tuple[Winner, ...] = ()
    stopped: tuple[Stopped, ...] = ()
    schema: int = schema.SCHEMA
    path: str | None = field(default=None, compare=False)

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

    def environment_variables(self) -> dict[str, str]:
        """What a server must find in its environment to run the profile's policy.

        Nothing for a profile that was not loaded from a file, or that deploys plain decoding. A
        server on a CPU needs more, which ``autospec args --env`` knows.
        """
        if self.path is None or self.choice.config.is_plain:
            return {}
        return {"AUTOSPEC_PROFILE": self.path}

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
    profile = schema.load(Profile, schema.read_yaml(path), str(path))
    return dataclasses.replace(profile, path=str(path.absolute()))


def save_profile(path: Path, profile: Profile) -> None:
    """Write a profile atomically.

    Raises:
        StorageError: it could not be written; an older file is untouched.
    """
    document = schema.dump(dataclasses.replace(profile, path=None))
    schema.write_yaml(path, {"schema": document.pop("schema"), **document})
