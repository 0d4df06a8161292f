"""SGLang's own forms: flags, environment variables, JSON and its adaptive file."""

from __future__ import annotations

import json
import shlex
from typing import Final

from autospec.errors import ConfigError
from autospec.exports.plan import Export, require_speculation, slots, slots_note
from autospec.profile import Profile
from autospec.tuning.prepare import server_environment

__all__ = ["export_adaptive", "export_args", "export_env", "export_json"]

#: Methods that SGLang 0.5.23 switches by itself (``srt/speculative/adaptive_spec_params.py``).
_ADAPTIVE: Final = ("EAGLE", "EAGLE3", "NEXTN")


def export_args(profile: Profile) -> Export:
    """The flags of ``python -m sglang.launch_server``, quoted for a shell."""
    return Export(f"{shlex.join(profile.to_argv())}\n", _one_depth(profile))


def export_env(profile: Profile) -> Export:
    """The variables that the server's process needs, as ``env`` takes them."""
    variables = _environment(profile)
    words = [f"{name}={value}" for name, value in variables.items()]
    notes = () if words else ("this server needs no variables",)
    return Export(f"{shlex.join(words)}\n" if words else "", notes)


def _environment(profile: Profile) -> dict[str, str]:
    """What the device needs, and what the runtime policy does."""
    return server_environment(profile.environment.device) | profile.environment_variables()


def export_json(profile: Profile) -> Export:
    """Flags, keyword arguments and environment in one object, with the verdict."""
    document = {
        "argv": profile.to_argv(),
        "server_args": profile.server_args(),
        "environment": _environment(profile),
        "config": str(profile.choice.config),
        "verdict": profile.verdict.decision,
        "reason": profile.verdict.reason,
    }
    return Export(f"{json.dumps(document, indent=2)}\n", _one_depth(profile))


def export_adaptive(profile: Profile) -> Export:
    """The file of ``--speculative-adaptive-config``, from the measured schedule.

    Each range of batch sizes has one candidate, so that the engine follows the load and never its
    own rule, which looks at acceptance alone.

    Raises:
        ConfigError: SGLang cannot switch what the profile deploys.
    """
    config = require_speculation(profile, "SGLang's adaptive file")
    if config.algorithm not in _ADAPTIVE or (config.topk or 1) > 1:
        raise ConfigError(
            f"SGLang switches the depth of {', '.join(_ADAPTIVE)} with topk=1 only, "
            f"the profile deploys {config.label}"
        )
    ranges = slots(profile)
    document = {str(slot.first): {"candidate_steps": [slot.depth]} for slot in ranges}
    notes = [
        "use it with: --speculative-adaptive --speculative-adaptive-config FILE",
        slots_note(profile),
        "one depth a batch size: it follows the load, and does not fall back with acceptance",
        "the engine builds graphs for every depth, which takes memory",
    ]
    if any(slot.depth == 0 for slot in ranges):
        notes.append(
            "depth 0 still runs one draft forward a step, and SGLang 0.5.23 fails at it without "
            "overlap scheduling: leave --disable-overlap-schedule out"
        )
    return Export(f"{json.dumps(document, indent=2)}\n", tuple(notes))


def _one_depth(profile: Profile) -> tuple[str, ...]:
    """What is lost where a server keeps one depth at every load."""
    if profile.choice.config.is_plain:
        return (f"plain decoding: {profile.verdict.reason}",)
    ranges = slots(profile)
    if len(ranges) == 1:
        return ()
    shown = ", ".join(f"{slot.depth} from batch size {slot.first}" for slot in ranges)
    return (f"flags hold one depth for every load; the measured schedule is {shown}",)
