"""The real command line over the fake SGLang: as patches for a test, or as a program.

Only what would start or ask SGLang is replaced; servers are real processes that speak HTTP.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).parents[2])

import pytest

from autospec.bench import serve, target
from autospec.cli import main, serving
from autospec.engine import cpu
from autospec.engine.capabilities import SUPPORTED_SGLANG, Platform, detect
from autospec.engine.server import ServerProcess
from autospec.tuning import arm, deploy, prepare

FAKE_COMMAND = (sys.executable, str(Path(__file__).parents[1] / "fake_sglang.py"))


def _accept_all(
    argvs: Sequence[Sequence[str]], _environment: Mapping[str, str], **_: float
) -> list[str | None]:
    return [None] * len(argvs)


def _detect(device: str | None = None) -> Platform:
    return replace(detect(device), sglang_version=SUPPORTED_SGLANG)


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake engine in the real one's place."""
    fake = partial(ServerProcess, command=FAKE_COMMAND, grace_s=2.0)
    monkeypatch.setattr(arm, "ServerProcess", fake)
    for module in (serving, serve):
        monkeypatch.setattr(module, "ServerProcess", fake)
    monkeypatch.setattr(prepare, "validate", _accept_all)
    monkeypatch.setattr(cpu, "needed", lambda _device: False, raising=False)
    for module in (prepare, deploy, target):
        monkeypatch.setattr(module, "detect", _detect)
        monkeypatch.setattr(module, "require_sglang", lambda: SUPPORTED_SGLANG)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patches:
        patch(patches)
        main()
