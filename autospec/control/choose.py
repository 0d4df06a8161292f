"""Which policy goes with a profile: the one beside it, the shipped default, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autospec.control.load import PolicyFile, load_policy

__all__ = ["DEFAULT_POLICY", "ChosenPolicy", "policy_for", "sibling_policy"]

#: The shipped policy that is used where nothing else is known.
DEFAULT_POLICY: Final = "throughput"


@dataclass(frozen=True, slots=True)
class ChosenPolicy:
    """A policy, and where it is from.

    Attributes:
        name: what ``load_policy`` found it by: a path, a shipped name or ``module:Class``.
        policy: what it says.
        origin: why this one: ``named`` by the user, ``beside`` the profile, or the ``default``.
    """

    name: str
    policy: PolicyFile
    origin: str


def sibling_policy(profile: Path) -> Path:
    """Where the policy of a profile lies: ``llama.yaml`` has ``llama.policy.yaml``."""
    name = profile.stem if profile.suffix in {".yaml", ".yml"} else profile.name
    return profile.with_name(f"{name}.policy.yaml")


def policy_for(profile: Path | None, named: str | None = None) -> ChosenPolicy:
    """Find the policy to use.

    Args:
        profile: the profile's path, if there is one.
        named: what the user asked for: a path, the name of a shipped policy, or ``module:Class``.

    Raises:
        SchemaError: the policy that is to be used cannot be read.
    """
    if named is not None:
        return ChosenPolicy(named, load_policy(named), "named")
    if profile is not None:
        beside = sibling_policy(profile)
        if beside.is_file():
            return ChosenPolicy(str(beside), load_policy(beside), "beside")
    return ChosenPolicy(DEFAULT_POLICY, load_policy(DEFAULT_POLICY), "default")
