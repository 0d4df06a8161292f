"""From what the user gives to a policy at work: profile, policy and drafting depth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from autospec.client.events import LOG
from autospec.client.steering import Steering
from autospec.control.choose import policy_for
from autospec.control.controller import Controller
from autospec.control.costs import Costs, costs_of_profile, drafting_depth
from autospec.control.load import PolicyFile, load_policy, make_controller
from autospec.control.policy import Policy, Setting
from autospec.errors import ConfigError, SchemaError
from autospec.profile import Profile, load_profile

__all__ = ["PolicyLike", "ProfileLike", "make_steering"]

ProfileLike = Profile | str | Path
#: A shipped policy's name, a path, ``module:Class``, a policy file's content, or an object that
#: decides.
PolicyLike = str | Path | PolicyFile | Policy


def make_steering(
    profile: ProfileLike | None, policy: PolicyLike | None, depth: int | None, *, routes: bool
) -> Steering:
    """Put the policy to work that the user wants, or the one that goes with the profile.

    Args:
        profile: what was measured, or its path.
        policy: as the user gave it. By default the one beside the profile's file, else
            ``throughput``; ``off`` where the profile says that plain decoding is better, and
            ``fixed`` where nothing was measured that could be weighed.
        depth: drafting depth of the speculative server; the profile's by default.
        routes: whether requests can be routed.

    Raises:
        InputError: the profile or the policy cannot be used.
    """
    path = Path(profile) if isinstance(profile, str | Path) else None
    known = load_profile(profile) if isinstance(profile, str | Path) else profile
    costs = _costs(known, str(path or "profile"))
    found = _depth(known, costs) if depth is None else depth
    chosen = _default(known, path, costs) if policy is None else policy
    if isinstance(chosen, str | Path):
        chosen = load_policy(chosen)
    setting = _setting(found, costs, chosen)
    if isinstance(chosen, PolicyFile):
        controller = make_controller(_for_one_depth(chosen, setting), setting)
    elif callable(getattr(chosen, "decide", None)):
        controller = Controller(setting, chosen)
    else:
        raise ConfigError(
            f"policy is a {type(chosen).__name__}, must be a name, a path, module:Class or an "
            "object with a method decide"
        )
    return Steering(controller, setting.depths[-1], routes=routes, sure=found is not None)


def _costs(profile: Profile | None, where: str) -> Costs | None:
    if profile is None:
        return None
    try:
        return costs_of_profile(profile, where)
    except SchemaError:
        return None


def _depth(profile: Profile | None, costs: Costs | None) -> int | None:
    """The drafting depth of the server that a profile deploys, or would have."""
    if profile is None:
        return None
    configs = (profile.choice.config, profile.verdict.best)
    speculative = [config for config in configs if config is not None and not config.is_plain]
    if speculative:
        return drafting_depth(speculative[0])
    return costs.depths[-1] if costs else None


def _default(profile: Profile | None, path: Path | None, costs: Costs | None) -> PolicyFile:
    """The policy for a user who names none."""
    if profile is None:
        return PolicyFile("fixed")
    chosen = policy_for(path)
    if chosen.origin == "beside":
        return chosen.policy
    if profile.choice.config.is_plain:
        return PolicyFile("off")
    if costs is None:
        LOG.warning(
            "the profile has no step times of both plain decoding and a method, so that neither "
            "can be weighed against the other: requests go to the speculative server"
        )
        return PolicyFile("fixed")
    return chosen.policy


def _setting(depth: int | None, costs: Costs | None, policy: object) -> Setting:
    """Plain decoding and the one depth that the speculative server has."""
    if depth is None:
        # These two ask for nothing but "speculate" or "do not".
        if not isinstance(policy, PolicyFile) or policy.kind not in {"fixed", "off"}:
            raise ConfigError(
                "the speculative server's drafting depth is not known: give a profile, or depth="
            )
        depth = 1
    if depth < 1:
        raise ConfigError(f"depth is {depth}, must be at least 1")
    usable = costs is not None and depth in costs.depths
    return Setting((0, depth), costs if usable else None)


def _for_one_depth(policy: PolicyFile, setting: Setting) -> PolicyFile:
    """A policy without candidates that a server of one depth does not have."""
    if "depths" not in policy.parameters:
        return policy
    parameters: dict[str, Any] = {**policy.parameters, "depths": setting.depths}
    return replace(policy, parameters=parameters)
