"""What the user asked the plugin for: environment variables that a server inherits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Asked", "asked_for"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What the plugin is to do.

    Attributes:
        profile: whose step times and policy to use.
        policy: a path, the name of a shipped policy, or ``module:Class``; None takes the profile's.
        trace: the file to record a trace into.
        sweep: where the orders of a tuning server's owner come from.
    """

    profile: Path | None = None
    policy: str | None = None
    trace: Path | None = None
    sweep: Path | None = None


def asked_for(environment: Mapping[str, str]) -> Asked | None:
    """Read ``AUTOSPEC_PROFILE``, ``AUTOSPEC_POLICY`` and ``AUTOSPEC_TRACE``; None without any.

    ``AUTOSPEC_SWEEP`` counts only where none of them is set: a server that serves takes no orders.
    """
    profile = environment.get("AUTOSPEC_PROFILE")
    policy = environment.get("AUTOSPEC_POLICY")
    trace = environment.get("AUTOSPEC_TRACE")
    sweep = environment.get("AUTOSPEC_SWEEP")
    if not (profile or policy or trace):
        return Asked(sweep=Path(sweep)) if sweep else None
    return Asked(Path(profile) if profile else None, policy or None, Path(trace) if trace else None)
