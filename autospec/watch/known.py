"""What a profile says of the server that is watched. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autospec.config import SpecConfig
from autospec.control.costs import Costs, costs_of_profile, drafting_depth
from autospec.control.drift import accept_ranges
from autospec.errors import SchemaError
from autospec.profile import Profile

__all__ = ["Known", "know"]

#: Options of ``autospec tune`` that belong to one study: a new one takes a new folder.
_OF_ONE_STUDY: Final = ("--study", "--resume")


@dataclass(frozen=True, slots=True)
class Known:
    """A profile as watching uses it.

    Attributes:
        path: its file.
        model: the target it was measured with.
        best: the configuration that its step times are of, beside plain decoding.
        costs: step times; None where it holds none of both.
        accept: lowest and highest accept length by depth, over the classes of prompts.
        noise_floor: of the machine it was measured on.
        retune: the command that would measure it anew.
    """

    path: str
    model: str
    best: SpecConfig | None
    costs: Costs | None
    accept: dict[int, tuple[float, float]]
    noise_floor: float
    retune: str

    def costs_for(self, config: SpecConfig) -> tuple[Costs | None, str | None]:
        """Step times of a server with this configuration, or why they are not known."""
        if self.costs is None or self.best is None:
            return None, f"{self.path} holds no step times of plain decoding and of speculation"
        if config.is_plain:
            return self.costs, None
        if _shape(config) != _shape(self.best):
            return None, f"the server runs {config.label}, {self.path} is of {self.best.label}"
        depth, depths = drafting_depth(config), self.costs.depths
        if depth not in depths:
            known = ", ".join(map(str, depths))
            return None, f"the server drafts {depth} deep, {self.path} has step times of {known}"
        return self.costs, None


def know(profile: Profile, path: Path) -> Known:
    """What a profile says, whatever it lacks."""
    try:
        costs = costs_of_profile(profile, str(path))
    except SchemaError:
        costs = None
    return Known(
        path=str(path),
        model=profile.target.model,
        best=profile.verdict.best,
        costs=costs,
        accept=accept_ranges(profile),
        noise_floor=profile.noise.floor if profile.noise else 0.0,
        retune=_retune(profile, path),
    )


def _shape(config: SpecConfig) -> tuple[object, ...]:
    """What two configurations must share to take each other's step times but for the depth."""
    algorithm = "EAGLE" if config.algorithm == "NEXTN" else config.algorithm
    breadth = config.option("ngram_max_bfs_breadth")
    tokens = None if config.is_chain else config.num_draft_tokens
    return (algorithm, config.topk or 1, breadth, tokens)


def _retune(profile: Profile, path: Path) -> str:
    """The command that made the profile, without what belonged to its study."""
    try:
        words = shlex.split(profile.provenance.command)
    except ValueError:
        words = []
    if words[:2] != ["autospec", "tune"] or any(word.startswith("--resume") for word in words):
        model, prompts = profile.target.model, profile.workload.name
        words = ["autospec", "tune", model, "--prompts", prompts, "-o", str(path)]
    kept: list[str] = []
    skip = False
    for word in words:
        skip, skipped = False, skip
        if skipped or word.startswith(tuple(f"{name}=" for name in _OF_ONE_STUDY)):
            continue
        if word in _OF_ONE_STUDY:
            skip = True
            continue
        kept.append(word)
    return shlex.join(kept)
