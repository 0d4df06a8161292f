"""Shadows SGLang's CUDA kernels in the server process of a CPU: see ``autospec.engine.cpu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autospec.engine.cpu import ops

ops.install()
globals().update(ops.FUNCTIONS)


def __getattr__(name: str) -> Callable[..., Any]:
    """A refusal for kernels that are imported by name for models that are never served here."""
    if name.startswith("_"):
        raise AttributeError(name)
    return ops.refusal(name)
