"""The public interface as a typed program sees it: mypy reads this, nothing runs it."""

from __future__ import annotations

from typing import Any

import autospec


def load_and_inspect() -> tuple[dict[str, Any], list[str]]:
    """What a program does with a profile."""
    profile: autospec.Profile = autospec.load_profile("profile.yaml")
    verdict: autospec.Verdict = profile.verdict
    ratio: autospec.Interval | None = verdict.vs_plain
    points: tuple[autospec.Point, ...] = profile.points
    environment: autospec.Environment = profile.environment
    chosen: autospec.SpecConfig = profile.choice.config
    if ratio and points and environment.device and chosen == autospec.PLAIN:
        chosen = autospec.SpecConfig.parse("NGRAM tokens=8")
    return profile.server_args(), profile.to_argv()


def refuse() -> str:
    """Every error has one base, and says what to do in one line."""
    try:
        autospec.load_profile("missing.yaml")
    except autospec.InputError as error:
        return str(error)
    except autospec.AutospecError as error:
        return f"{error.exit_code}: {error}"
    return ""
