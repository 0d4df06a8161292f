"""Lets SGLang take its CPU path on a CPU without AMX tiles.

SGLang asks PyTorch for AMX tiles once, while ``sglang.srt.utils.common`` is imported, long before
it imports ``sgl_kernel``. The kernels here need no tiles, so the answer is changed just before.
"""

# ruff: noqa: INP001 - this folder is an entry of the path, not a package
from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["install"]

_ASKS_FOR_TILES = "sglang.srt.utils.common"


class _BeforeSglang(importlib.abc.MetaPathFinder):
    """Finds nothing; acts when the module that asks is looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if fullname == _ASKS_FOR_TILES:
            import torch  # noqa: PLC0415 - every Python process runs this file, few need torch

            torch.cpu._is_amx_tile_supported = lambda: True  # noqa: SLF001 - what SGLang calls
        return None


def install() -> None:
    """Watch for the import of SGLang; once a process."""
    if not any(isinstance(finder, _BeforeSglang) for finder in sys.meta_path):
        sys.meta_path.insert(0, _BeforeSglang())
