"""The runtime policy that ``tune`` writes beside a profile, fitted to what was measured. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from autospec import schema
from autospec.config import SpecConfig
from autospec.control.choose import sibling_policy
from autospec.control.costs import costs_of_profile, drafting_depth
from autospec.control.gates import Gates
from autospec.control.kinds.throughput import Throughput
from autospec.control.load import PolicyFile
from autospec.errors import SchemaError
from autospec.evidence import Noise
from autospec.profile import Profile

__all__ = ["FittedPolicy", "fit_policy", "policy_text", "save_policy"]

#: Methods whose drafting depth can change inside a running server, as chains.
_CHAINS: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})
#: The most that a policy may give away for quiet: plain decoding's throughput is kept to 98 %.
_MOST_INDIFFERENCE: Final = {"indifference": 0.02, "depth_indifference": 0.03}


@dataclass(frozen=True, slots=True)
class FittedPolicy:
    """A policy, and why it is this one.

    Attributes:
        policy: what the file says.
        reason: one sentence for a person.
    """

    policy: PolicyFile
    reason: str


def fit_policy(profile: Profile) -> FittedPolicy:
    """The policy for what a profile deploys.

    It repeats no measurement: step times are the profile's, which the policy is given beside.
    """
    config = profile.choice.config
    if config.is_plain:
        return FittedPolicy(PolicyFile("off"), "the profile deploys plain decoding")
    try:
        measured = costs_of_profile(profile, "profile").depths
    except SchemaError:
        reason = "without step times of both, plain decoding cannot be weighed against it"
        return FittedPolicy(PolicyFile("fixed"), reason)
    parameters: dict[str, Any] = {"depths": _candidates(profile, measured)}
    parameters |= _indifference(profile.noise)
    return FittedPolicy(
        PolicyFile("throughput", parameters, _gates(profile.schedule)), _reach(config)
    )


def policy_text(fitted: FittedPolicy, profile: str) -> str:
    """The policy file's content.

    Args:
        fitted: the policy.
        profile: name of the profile's file, for the comment.
    """
    policy = fitted.policy
    document: dict[str, Any] = {"schema": policy.schema, "kind": policy.kind}
    if policy.parameters:
        document["parameters"] = policy.parameters
    gates = schema.dump(policy.gates)
    changed = {k: value for k, value in gates.items() if value != getattr(Gates(), k)}
    if changed:
        document["gates"] = changed
    head = f"# Runtime policy of {profile}: {fitted.reason}.\n"
    return head + schema.yaml_text(document)


def save_policy(profile: Profile, path: Path) -> Path:
    """Write a profile's policy beside it, atomically.

    Args:
        profile: what was measured.
        path: the profile's file.

    Returns:
        The policy's file.

    Raises:
        StorageError: it could not be written; an older file is untouched.
    """
    beside = sibling_policy(path)
    schema.write_text(beside, policy_text(fit_policy(profile), path.name))
    return beside


def _candidates(profile: Profile, measured: tuple[int, ...]) -> tuple[int, ...]:
    """Depths to choose from: of those measured, none deeper than the server is started with.

    Where each costs graph memory: plain decoding, the shallowest, the deployed one, and those that
    were best at some load.
    """
    config = profile.choice.config
    deepest = drafting_depth(config)
    if config.algorithm not in _CHAINS or config.topk not in {None, 1}:
        return (0, deepest)
    depths = [depth for depth in measured if depth <= deepest]
    if profile.environment.device == "cpu":
        return tuple(depths)
    wanted = {0, depths[1], deepest, *_best_at_each_load(profile)}
    return tuple(depth for depth in depths if depth in wanted)


def _best_at_each_load(profile: Profile) -> Iterable[int]:
    """Of the deployed method, the depth that made the most tokens at each load of the search."""
    best: dict[int, tuple[float, int]] = {}
    for point in profile.points:
        if point.part == "tune" and _method(point.config) == _method(profile.choice.config):
            made = (point.output_throughput.value, drafting_depth(point.config))
            best[point.concurrency] = max(best.get(point.concurrency, made), made)
    return (depth for _, depth in best.values())


def _method(config: SpecConfig) -> SpecConfig:
    return replace(config, num_steps=None, num_draft_tokens=None)


def _reach(config: SpecConfig) -> str:
    """Who can obey the policy."""
    if config.algorithm == "NGRAM":
        return "speculation is switched on and off in the server"
    if config.algorithm not in _CHAINS:
        return f"no server can switch {config.algorithm}, so it is for clients that route requests"
    if config.topk not in {None, 1}:
        return "no server can switch a draft tree, so it is for clients that route requests"
    return "the drafting depth is switched in the server"


def _indifference(noise: Noise | None) -> dict[str, float]:
    """Gains that are not worth a change: step times are no surer than the machine's noise."""
    if noise is None:
        return {}
    least = Throughput.Parameters()
    return {
        name: min(max(getattr(least, name), noise.floor), most)
        for name, most in _MOST_INDIFFERENCE.items()
    }


def _gates(schedule: dict[int, int]) -> Gates:
    """Plain decoding above the largest load, if it was the better one there already."""
    most = max(schedule, default=0)
    return Gates(max_batch_size=most) if most and schedule[most] == 0 else Gates()
