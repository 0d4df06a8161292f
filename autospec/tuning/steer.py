"""The policy inside a server that autospec starts: asked for before, verified after."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from autospec.config import SpecConfig
from autospec.control.costs import drafting_depth
from autospec.control.status import PluginStatus, read_status, status_path
from autospec.errors import AutospecError, ConfigError, EngineError, SchemaError
from autospec.plugin.asked import Asked, asked_for
from autospec.plugin.plan import EngineFacts, make_plan
from autospec.profile import Profile

__all__ = ["Steered", "forget_status", "plan_steering", "require_steered"]

_PLUGIN: Final = "autospec"
#: The plugin writes its first status while its server starts.
_PATIENCE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Steered:
    """What is expected of a server's plugin.

    Attributes:
        environment: variables for the server.
        reason: one sentence for a person.
        asked: what they ask for; None where they keep the plugin out.
        decides: whether a policy must be at work.
    """

    environment: dict[str, str]
    reason: str
    asked: Asked | None = None
    decides: bool = False


def plan_steering(
    path: Path,
    profile: Profile,
    *,
    policy: str | None = None,
    without: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Steered:
    """What a server of this profile is to be told.

    Args:
        path: the profile's file.
        profile: what it says.
        policy: what the user named instead of the profile's own policy.
        without: the user wants no policy.
        environ: what the server inherits; this process's environment by default.

    Raises:
        InputError: the named policy cannot be read or used with this profile.
    """
    environ = os.environ if environ is None else environ
    trace = (asked_for(environ) or Asked()).trace
    keep_out = {"AUTOSPEC_PROFILE": "", "AUTOSPEC_POLICY": ""}
    if trace is not None and policy is None:
        where = Asked(trace=trace.absolute())
        variables = {**keep_out, **_loaded(environ), "AUTOSPEC_TRACE": str(where.trace)}
        return Steered(variables, f"no policy: records a trace into {trace}", where)
    if without:
        return Steered(keep_out, "no policy, as asked for")
    config, where = profile.choice.config, Asked(path.absolute(), _named(policy))
    if config.is_plain:
        if policy is not None:
            raise ConfigError(f"policy {policy!r} has nothing to switch: {path} decodes plainly")
        return Steered(keep_out, "no policy: plain decoding has nothing to switch")
    try:
        plan = make_plan(where, _facts(config))
        if plan.controller is None:
            raise ConfigError(plan.reason)
    except AutospecError as error:
        if policy is not None:
            raise
        return Steered(keep_out, f"no policy: {error}")
    variables = {**keep_out, **_loaded(environ), "AUTOSPEC_PROFILE": str(where.profile)}
    if where.policy is not None:
        variables["AUTOSPEC_POLICY"] = where.policy
    return Steered(variables, f"policy {plan.policy}: {plan.reason}", where, decides=True)


def forget_status(port: int) -> None:
    """Remove what an earlier server on this port left behind."""
    with contextlib.suppress(OSError):
        status_path(port).unlink(missing_ok=True)


def require_steered(
    steered: Steered, *, port: int, pid: int, patience_s: float = _PATIENCE_S
) -> PluginStatus:
    """Look whether the plugin of a started server does what was asked for.

    Args:
        steered: what was asked for.
        port: the server's.
        pid: the server's own process.
        patience_s: how long its first word may take.

    Raises:
        EngineError: it does not, with its own reason.
    """
    path, until = status_path(port), time.monotonic() + patience_s
    status: PluginStatus | None = None
    while status is None or not _belongs(status.pid, pid):
        if time.monotonic() > until:
            raise EngineError(
                "the server runs without autospec's plugin: is autospec installed where the "
                f"server's Python finds it? (no word of process {pid} in {path})"
            )
        with contextlib.suppress(SchemaError):
            status = read_status(path)
        time.sleep(0.05)
    wanted = None if steered.asked is None else steered.asked.profile
    if status.profile != (None if wanted is None else str(wanted)):
        raise EngineError(f"the server's plugin uses profile {status.profile}, not {wanted}")
    if steered.decides and not status.active:
        raise EngineError(f"the server's policy is not active: {status.reason}")
    return status


def _loaded(environ: Mapping[str, str]) -> dict[str, str]:
    """What lets the plugin be loaded where the user chose which plugins are."""
    names = environ.get("SGLANG_PLUGINS", "")
    if not names or _PLUGIN in (name.strip() for name in names.split(",")):
        return {}
    return {"SGLANG_PLUGINS": f"{names},{_PLUGIN}"}


def _named(policy: str | None) -> str | None:
    """A policy as the server finds it, whatever folder it runs in."""
    return str(Path(policy).absolute()) if policy and Path(policy).is_file() else policy


def _facts(config: SpecConfig) -> EngineFacts:
    algorithm = "EAGLE" if config.algorithm == "NEXTN" else config.algorithm
    return EngineFacts(algorithm, drafting_depth(config), config.topk or 1)


def _belongs(pid: int, server: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return pid == server or server in (parent.pid for parent in psutil.Process(pid).parents())
    return False
