"""autospec chooses and controls speculative decoding for models served by SGLang.

Importing it loads none of torch, sglang, skopt or matplotlib.
"""

from __future__ import annotations

from importlib.metadata import version

from autospec.config import PLAIN, SpecConfig
from autospec.errors import (
    AutospecError,
    ConfigError,
    EngineError,
    InputError,
    MismatchError,
    SchemaError,
)
from autospec.evidence import Environment, Interval, Point
from autospec.profile import Profile, Verdict, load_profile

__all__ = [
    "PLAIN",
    "AutospecError",
    "ConfigError",
    "EngineError",
    "Environment",
    "InputError",
    "Interval",
    "MismatchError",
    "Point",
    "Profile",
    "SchemaError",
    "SpecConfig",
    "Verdict",
    "load_profile",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return version("sglang-autospec")
    raise AttributeError(f"module 'autospec' has no attribute {name!r}")
