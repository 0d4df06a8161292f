"""autospec chooses and controls speculative decoding for models served by SGLang.

Its names are loaded when they are first used. Importing it loads none of httpx, torch, sglang,
skopt or matplotlib.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from autospec.client import AsyncClient, Client
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
    "AsyncClient",
    "AutospecError",
    "Client",
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

#: Where each public name comes from when it is first asked for.
_HOMES: Final = {
    **dict.fromkeys(("AsyncClient", "Client"), "autospec.client"),
    **dict.fromkeys(("PLAIN", "SpecConfig"), "autospec.config"),
    **dict.fromkeys(("Environment", "Interval", "Point"), "autospec.evidence"),
    **dict.fromkeys(("Profile", "Verdict", "load_profile"), "autospec.profile"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  # slow, and seldom asked for

        return version("sglang-autospec")
    if name not in __all__:
        raise AttributeError(f"module 'autospec' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES.get(name, "autospec.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
