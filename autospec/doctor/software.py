"""Python, SGLang, what both need, and the variables that would falsify a measurement."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from autospec.doctor.finding import Finding, blocks, fine, warns
from autospec.engine.capabilities import SUPPORTED_SGLANG, Platform

__all__ = ["check_software"]

_PYTHON: Final = ((3, 11), (3, 14))
_INSTALL: Final = "pip install 'sglang-autospec[sglang]'"
#: Programs that SGLang runs to compile kernels when a server starts, and the Debian packages.
_COMPILERS: Final = {"g++": "build-essential", "ninja": "ninja-build"}
#: Modules that a feature needs: module, extra that brings it, what for.
_EXTRAS: Final = (
    ("matplotlib", "report", "autospec report"),
    ("jinja2", "report", "autospec report"),
    ("gguf", "demo", "autospec tune --demo"),
)
#: Variables of SGLang that make it answer nonsense, fast, for its own benchmarks.
_FAKES: Final = ("SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_TOKEN_MODE")


def check_software(platform: Platform, environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at what is installed and set.

    Args:
        platform: this machine.
        environment: variables that a server would inherit.
    """
    yield _python()
    yield _sglang(platform)
    yield from _compilers()
    yield from _extras()
    for name in _FAKES:
        if environment.get(name):
            yield blocks(
                "environment",
                f"{name}={environment[name]} makes SGLang pretend that drafts are accepted",
                f"unset {name}",
            )


def _python() -> Finding:
    here, (least, beyond) = sys.version_info[:2], _PYTHON
    shown = ".".join(map(str, sys.version_info[:3]))
    if least <= here < beyond:
        return fine("Python", f"{shown} at {sys.executable}")
    return blocks(
        "Python", f"{shown}, must be 3.11, 3.12 or 3.13", "make PYTHON=python3.11 install"
    )


def _sglang(platform: Platform) -> Finding:
    found = platform.sglang_version
    if not found:
        return blocks("SGLang", "not installed", _INSTALL)
    if found != SUPPORTED_SGLANG:
        return blocks(
            "SGLang",
            f"{found}; autospec was tested with {SUPPORTED_SGLANG} and knows its flags and "
            "counters only",
            f"pip install sglang=={SUPPORTED_SGLANG}",
        )
    if not platform.torch_version:
        return blocks("SGLang", f"{found} without PyTorch", _INSTALL)
    return fine("SGLang", f"{found}, the tested version, with torch {platform.torch_version}")


def _compilers() -> Iterator[Finding]:
    # SGLang finds programs beside the interpreter too; autospec puts that folder on its path.
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])  # noqa: PTH120 -- part of a PATH
    missing = [name for name in _COMPILERS if shutil.which(name, path=path) is None]
    for name in missing:
        yield warns(
            "compilers",
            f"{name} is missing: SGLang compiles NGRAM's corpus and other kernels at start",
            f"apt install {_COMPILERS[name]}",
        )
    if not missing:
        yield fine("compilers", f"{' and '.join(_COMPILERS)} are here")


def _extras() -> Iterator[Finding]:
    missing = [row for row in _EXTRAS if importlib.util.find_spec(row[0]) is None]
    for module, extra, purpose in missing:
        yield warns(
            "extras", f"{module} is missing: {purpose}", f"pip install 'sglang-autospec[{extra}]'"
        )
    if not missing:
        yield fine("extras", "report and demo are installed")
