"""What the plugin will do in a server that was started in a certain way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autospec.control.choose import policy_for
from autospec.control.controller import Controller
from autospec.control.costs import Costs, costs_of_profile
from autospec.control.load import PolicyFile, make_controller
from autospec.control.policy import Setting
from autospec.control.refine import LiveCosts
from autospec.control.status import Switching
from autospec.errors import AutospecError, ConfigError
from autospec.plugin.asked import Asked
from autospec.plugin.ordered import Ordered
from autospec.profile import Profile, load_profile

__all__ = ["EngineFacts", "Plan", "inactive", "make_plan"]

_CHAINS: Final = ("EAGLE", "EAGLE3", "STANDALONE")


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """How the server speculates.

    Attributes:
        algorithm: SGLang's name of the method.
        depth: drafts in a row that a step can get right, as the server was started.
        topk: branches per drafted level.
        captures_graphs: whether each depth costs graph memory.
        overlaps: whether a step is launched before the one before it is known.
        ranks: processes that must decide alike.
        obstacle: why the plugin must not switch this server; None where it may.
    """

    algorithm: str
    depth: int
    topk: int = 1
    captures_graphs: bool = False
    overlaps: bool = False
    ranks: int = 1
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the plugin does.

    Attributes:
        controller: what decides; None where nothing is switched.
        switching: what is switched.
        depths: drafting depths that the server must be able to run, rising.
        reason: in one sentence, for a person.
        policy: the policy's name or path.
        kind: the policy's kind.
        costs: step times that the policy works with.
        live: the same where the server corrects them; None elsewhere.
        ordered: takes the orders of a tuning server's owner; None in any other server.
    """

    controller: Controller | None
    switching: Switching
    depths: tuple[int, ...]
    reason: str
    policy: str | None = None
    kind: str | None = None
    costs: Costs | None = None
    live: LiveCosts | None = None
    ordered: Ordered | None = None


def make_plan(asked: Asked, engine: EngineFacts) -> Plan:
    """Decide what to do in this server.

    Raises:
        AutospecError: the profile or the policy cannot be read, or not be used here.
    """
    switching, reason = _reach(engine)
    if asked.trace is not None:
        return Plan(None, switching, (engine.depth,), "records a trace at full depth; no policy")
    if switching == "nothing":
        return Plan(None, switching, (engine.depth,), reason)
    if asked.sweep is not None:
        return _obeying(asked.sweep, engine, switching)
    chosen = policy_for(asked.profile, asked.policy)
    costs = profile = live = None
    if asked.profile is not None:
        profile = load_profile(asked.profile)
        if profile.choice.config.algorithm.replace("NEXTN", "EAGLE") != engine.algorithm:
            raise ConfigError(
                f"{asked.profile}: the profile deploys {profile.choice.config.label}, but the "
                f"server drafts with {engine.algorithm}"
            )
        costs = costs_of_profile(profile, str(asked.profile))
        if engine.ranks == 1:
            # A clock shows each rank something else, and then ranks would part.
            floor = profile.noise.floor if profile.noise is not None else 0.0
            costs = live = LiveCosts(costs, floor)
    depths = _depths(engine, chosen.policy, profile, costs)
    controller = make_controller(chosen.policy, Setting(depths, costs), static_depth=engine.depth)
    return Plan(controller, switching, depths, reason, chosen.name, chosen.policy.kind, costs, live)


def inactive(engine: EngineFacts, error: BaseException) -> Plan:
    """To do nothing, because of an error."""
    kind = "" if isinstance(error, AutospecError) else f"{type(error).__name__}: "
    return Plan(None, "nothing", (engine.depth,), f"not active: {kind}{error}")


def _obeying(path: Path, engine: EngineFacts, switching: Switching) -> Plan:
    """To draft at whatever depth is ordered."""
    if switching != "depth":
        raise ConfigError(f"{engine.algorithm} has no depths to sweep")
    if engine.ranks > 1:
        # Each rank would see a new order at another step, and then ranks would part.
        raise ConfigError(f"the server has {engine.ranks} ranks, a sweep needs a single one")
    ordered = Ordered(path)
    if engine.depth != ordered.depths[-1]:
        raise ConfigError(
            f"the server drafts at depth {engine.depth}, but orders may go to {ordered.depths[-1]}"
        )
    reason = f"runs {engine.algorithm} at the depth that the tuner orders"
    controller = ordered.controller(engine.depth)
    return Plan(controller, switching, ordered.depths, reason, kind="ordered", ordered=ordered)


def _reach(engine: EngineFacts) -> tuple[Switching, str]:
    """What can be switched, and the sentence about it."""
    if engine.obstacle is not None:
        return "nothing", f"can only observe: {engine.obstacle}"
    if engine.algorithm == "NGRAM":
        return "on-off", "switches NGRAM on and off"
    if engine.algorithm in _CHAINS and engine.topk == 1:
        return "depth", f"switches the depth of {engine.algorithm}, 0 for plain decoding"
    shape = " trees" if engine.topk > 1 else ""
    return "nothing", f"can only observe: {engine.algorithm}{shape} cannot be switched in 0.5.23"


def _depths(
    engine: EngineFacts, policy: PolicyFile, profile: Profile | None, costs: Costs | None
) -> tuple[int, ...]:
    """The depths to have ready: plain decoding, the one at start, and what could be asked for.

    Where a depth costs graph memory, only those are that the policy or the schedule names.
    """
    wanted = {0, engine.depth, *_named(policy.parameters)}
    if engine.algorithm == "NGRAM":
        wanted = {0, engine.depth}
    elif profile is not None and costs is not None:
        ready = profile.schedule.values() if engine.captures_graphs else costs.depths
        wanted.update(ready)
    known = wanted if costs is None else wanted & {*costs.depths}
    if costs is not None and engine.depth not in known:
        raise ConfigError(
            f"the server drafts at depth {engine.depth}, but step times are known for "
            f"{list(costs.depths)} only"
        )
    return tuple(sorted(depth for depth in known if depth <= engine.depth))


def _named(parameters: Any) -> Iterable[int]:
    """The depths that a policy's parameters name, under whatever kind's words."""
    if not isinstance(parameters, dict):
        return
    for name, value in parameters.items():
        if name == "depth" and type(value) is int:
            yield value
        elif name in {"depths", "candidate_steps"} and isinstance(value, list | tuple):
            yield from (depth for depth in value if type(depth) is int)
        else:
            yield from _named(value)
