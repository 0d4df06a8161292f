"""Policy files, and policies by name, path or class.

A policy file is YAML: ``schema``, ``kind``, ``parameters`` of the kind and ``gates``. It holds
decision rules and no measurement.
"""

from __future__ import annotations

import importlib
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autospec import schema, shipped
from autospec.control.controller import Controller
from autospec.control.gates import Gates
from autospec.control.kinds.fixed import Fixed
from autospec.control.kinds.off import Off
from autospec.control.kinds.sglang_adaptive import SglangAdaptive
from autospec.control.kinds.threshold import Threshold
from autospec.control.kinds.throughput import Throughput
from autospec.control.policy import Setting
from autospec.errors import AutospecError, ConfigError, SchemaError

__all__ = ["KINDS", "PolicyFile", "kind_named", "load_policy", "make_controller"]

#: The shipped kinds.
KINDS: dict[str, type[Any]] = {
    "off": Off,
    "fixed": Fixed,
    "sglang-adaptive": SglangAdaptive,
    "threshold": Threshold,
    "throughput": Throughput,
}


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """What a policy file says.

    Attributes:
        kind: a shipped kind, or ``module:Class`` of the user's own.
        parameters: values of the kind's ``Parameters``.
        gates: bounds and damping.
    """

    kind: str
    parameters: dict[str, Any] = field(default_factory=dict)
    gates: Gates = field(default_factory=Gates)
    schema: int = schema.SCHEMA


def load_policy(name: str | Path) -> PolicyFile:
    """Find a policy.

    Args:
        name: a path to a policy file, the name of a shipped one, or ``module:Class``.

    Raises:
        SchemaError: there is no such policy, or its file breaks a rule.
    """
    text = str(name)
    path = Path(name)
    if path.suffix not in {".yaml", ".yml"} and not path.is_file():
        if ":" in text:
            return PolicyFile(text)
        path = shipped.policy_path(text)
    return schema.load(PolicyFile, schema.read_yaml(path), str(path))


def kind_named(name: str) -> type[Any]:
    """A kind by its name or as ``module:Class``.

    Raises:
        ConfigError: there is none, or it cannot be imported.
    """
    if name in KINDS:
        return KINDS[name]
    module, separator, attribute = name.partition(":")
    if not separator:
        raise ConfigError(f"kind {name!r} is none of {', '.join(KINDS)}, nor module:Class")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except AutospecError:
        raise
    except Exception as error:
        raise ConfigError(f"kind {name!r} cannot be imported: {error}") from error
    if not isinstance(getattr(kind, "Parameters", None), type):
        raise ConfigError(f"kind {name!r} must be a class with a dataclass Parameters inside")
    return typing.cast("type[Any]", kind)


def make_controller(policy: PolicyFile, setting: Setting, *, static_depth: int = 0) -> Controller:
    """A policy at work.

    Args:
        policy: what its file says.
        setting: where it works.
        static_depth: where the server goes if the policy fails.

    Raises:
        InputError: the kind, its parameters or the setting do not fit.
    """
    kind = kind_named(policy.kind)
    parameters = schema.load(kind.Parameters, dict(policy.parameters), f"{policy.kind} parameters")
    try:
        made = kind(setting, parameters)
    except AutospecError:
        raise
    except Exception as error:
        raise ConfigError(f"kind {policy.kind!r} cannot be made: {error}") from error
    if not callable(getattr(made, "decide", None)):
        raise SchemaError(f"kind {policy.kind!r} must have a method decide")
    return Controller(setting, made, policy.gates, static_depth=static_depth)
