"""Runs when a process starts that has the overlay on its path: see ``autospec_cpu_hook``."""

# ruff: noqa: INP001 - this folder is an entry of the path, not a package
from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

importlib.import_module("autospec_cpu_hook").install()

# Python runs one sitecustomize only, so this one runs the one it shadows.
_elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != Path(__file__).parent]
_shadowed = importlib.machinery.PathFinder.find_spec("sitecustomize", _elsewhere)
if _shadowed is not None and _shadowed.loader is not None:
    _shadowed.loader.exec_module(importlib.util.module_from_spec(_shadowed))
