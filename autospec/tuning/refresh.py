"""A profile's step times, brought up to date with what a running server saw. Pure but for files."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from autospec.config import SpecConfig
from autospec.control.costs import costs_of_profile, drafting_depth
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.errors import ConfigError, MismatchError
from autospec.evidence import StepTime
from autospec.profile import Profile

__all__ = ["Refreshed", "refresh", "status_of_server"]

_HERE: Final = ("127.0.0.1", "localhost", "::1")
#: Relative change of a step time that is not worth a line.
_LEAST: Final = 0.005
#: A row takes the correction of a batch size that is at most so many times its own, or its part.
_NEAR: Final = 2.0


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A new profile and what is new in it, a line each."""

    profile: Profile
    changes: tuple[str, ...]


def status_of_server(url: str, profile: Path) -> PluginStatus:
    """What the plugin of a server on this machine says of itself.

    Args:
        url: the server's.
        profile: the one that it must work with.

    Raises:
        ConfigError: the server is not on this machine, or the address has no port.
        SchemaError: its plugin has written nothing.
        MismatchError: it works with another profile, or with no step times.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"url {url!r} cannot be read: {error}") from error
    if host not in _HERE or port is None:
        raise ConfigError(
            f"url is {url!r}, must be http://127.0.0.1:PORT: the plugin's word lies in a file on "
            "the server's machine"
        )
    status = read_status(status_path(port))
    if status.profile != str(profile.absolute()):
        raise MismatchError(
            f"the server at {url} works with profile {status.profile}, not {profile}"
        )
    if not status.step_time_ms:
        raise MismatchError(f"the server at {url} has timed nothing: {status.reason}")
    return status


def refresh(profile: Profile, status: PluginStatus, where: str) -> Refreshed:
    """The profile with the step times that the server's policy works with now.

    What was decided stays as it was: it rests on throughput, which was not measured anew.

    Args:
        profile: what the server was started with.
        status: the plugin's word.
        where: the profile's name, for errors.

    Raises:
        SchemaError: the profile holds no step times.
    """
    costs = costs_of_profile(profile, where)
    rows: list[StepTime] = []
    changes: list[str] = []
    for row in profile.step_times:
        factor = 1.0
        depth = drafting_depth(row.config)
        seen = status.step_time_ms.get(depth, {})
        if seen and _switched(row.config, profile.choice.config):
            batch = min(seen, key=lambda size: abs(math.log(size / row.batch_size)))
            if 1 / _NEAR <= batch / row.batch_size <= _NEAR:
                factor = seen[batch] / costs.time_ms(depth, batch)
        if abs(factor - 1) > _LEAST:
            new = round(row.step_time_ms * factor, 3)
            changes.append(
                f"{row.config.label} at batch size {row.batch_size:g}: {row.step_time_ms:.2f} ms "
                f"is now {new:.2f} ms ({factor - 1:+.1%})"
            )
            row = replace(row, step_time_ms=new)  # noqa: PLW2901  # the row as it goes on
        rows.append(row)
    if not changes:
        return Refreshed(profile, ())
    day = datetime.fromtimestamp(status.updated_s, UTC).date().isoformat()
    note = f"step times are of a server in use on {day}, all else as measured before"
    return Refreshed(
        replace(profile, step_times=tuple(rows), warnings=(*profile.warnings, note)),
        tuple(changes),
    )


def _switched(config: SpecConfig, deployed: SpecConfig) -> bool:
    """Whether a configuration is one of those that the server's policy switches between."""
    shapeless = [replace(c, num_steps=None, num_draft_tokens=None) for c in (config, deployed)]
    return config.is_plain or shapeless[0] == shapeless[1]
