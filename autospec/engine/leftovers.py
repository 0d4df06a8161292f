"""Servers on this machine: those that outlived whoever started them, and those of others."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from autospec.engine import guard
from autospec.engine.server import MARK

__all__ = ["FoundServer", "find_servers"]

#: The end of a guard's command: that of another installation lies elsewhere.
_GUARD: Final = Path(guard.__file__).parts[-3:]
#: How SGLang's processes are called: by their command, and by the titles they give themselves.
_SGLANG: Final = ("sglang.launch_server", "sglang::", "sglang serve")


@dataclass(frozen=True, slots=True)
class FoundServer:
    """The processes of one SGLang server.

    Attributes:
        pids: of all its processes, the eldest first.
        ours: whether autospec started it.
        guarded: whether what started it still watches over it.
        memory_gib: memory of the host that they hold.
    """

    pids: tuple[int, ...]
    ours: bool
    guarded: bool
    memory_gib: float


def find_servers() -> tuple[FoundServer, ...]:
    """Every SGLang server that this user can see, the eldest first.

    A server is autospec's when its processes carry autospec's mark. It is guarded while its guard
    lives; a guard ends its server when whoever started it ends, so one without is a leftover.
    """
    groups: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            key = _group(process)
            if key is not None:
                groups.setdefault(key, []).append(process)
    found = [_describe(members, ours=key.startswith(MARK)) for key, members in groups.items()]
    return tuple(sorted(found, key=lambda server: server.pids))


def _group(process: psutil.Process) -> str | None:
    """What the processes of one server have in common; None for other programs."""
    command = " ".join(process.cmdline())
    if _is_guard(process) or process.status() == psutil.STATUS_ZOMBIE:
        return None
    mark = process.environ().get(MARK)
    if mark is None and not any(name in command for name in _SGLANG):
        return None
    family = [parent for parent in process.parents() if _is_sglang(parent)]
    # A process that names itself may write over its environment, and the mark with it.
    marks = [mark, *(parent.environ().get(MARK) for parent in family)]
    mark = next((found for found in marks if found is not None), None)
    if mark is not None:
        return f"{MARK}={mark}"
    return f"pid={family[-1].pid if family else process.pid}"


def _is_guard(process: psutil.Process) -> bool:
    return any(Path(word).parts[-3:] == _GUARD for word in process.cmdline())


def _is_sglang(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return any(name in command for name in _SGLANG)
    return False


def _describe(members: list[psutil.Process], *, ours: bool) -> FoundServer:
    memory = 0
    guarded = False
    for process in members:
        with contextlib.suppress(psutil.Error, OSError):
            memory += process.memory_info().rss
            guarded |= any(_is_guard(parent) for parent in process.parents())
    pids = tuple(sorted(process.pid for process in members))
    return FoundServer(pids, ours, guarded, round(memory / 2**30, 1))
