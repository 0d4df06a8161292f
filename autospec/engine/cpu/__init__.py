"""The engine on a CPU: what lets stock SGLang serve and speculate without a GPU.

SGLang's own CPU kernels are a separate build that is not on PyPI. This package provides the same
surface in PyTorch. It reaches a server process only through the environment made here, which puts
``overlay`` first on that process's path, so that ``import sgl_kernel`` finds the overlay. A server
for any other device is started without it. Nothing in this module imports torch.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from autospec.engine.cpu.cores import physical_cores
from autospec.errors import EngineError

__all__ = ["activate", "environment", "needed", "physical_cores", "thread_count"]

OVERLAY = Path(__file__).parent / "overlay"

# Waiting threads spin for a few tens of microseconds, about one small kernel, then sleep: a purely
# passive wait costs more to wake than a layer takes, an endless spin starves SGLang's other
# processes.
_SPIN_COUNT = 5000

# Weights on huge pages: a quarter off the time of a small layer, which is spent on reading them.
_HUGE_PAGES = "glibc.malloc.hugetlb"


def needed(device: str) -> bool:
    """Whether a server for this device needs the kernels of this package.

    Args:
        device: SGLang's ``--device`` value.

    Returns:
        True for a CPU device when no native CPU build of ``sgl_kernel`` is importable.
    """
    if device != "cpu":
        return False
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != OVERLAY]
    spec = importlib.machinery.PathFinder.find_spec("sgl_kernel", elsewhere)
    if spec is None or spec.origin is None:
        return True
    # The native CPU build has its one library beside its __init__; the CUDA wheel keeps one for
    # each GPU generation in folders of their own.
    return not any(Path(spec.origin).parent.glob("common_ops*"))


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that give a server process the kernels of this package.

    Args:
        base: the environment they will be added to; this process's by default.

    Returns:
        Only the variables to set. ``PYTHONPATH`` keeps what was on it, behind the overlay; a number
        of threads below the number of cores, a spin count and other malloc settings are kept.
    """
    base = os.environ if base is None else base
    path = [entry for entry in base.get("PYTHONPATH", "").split(os.pathsep) if entry]
    tunables = base.get("GLIBC_TUNABLES", "")
    if _HUGE_PAGES not in tunables:
        tunables = ":".join([*filter(None, [tunables]), f"{_HUGE_PAGES}=1"])
    return {
        "PYTHONPATH": os.pathsep.join([str(OVERLAY), *(e for e in path if e != str(OVERLAY))]),
        "SGLANG_USE_CPU_ENGINE": "1",
        "OMP_NUM_THREADS": str(thread_count(base)),
        "OMP_WAIT_POLICY": "passive",
        "GLIBC_TUNABLES": tunables,
        "GOMP_SPINCOUNT": base.get("GOMP_SPINCOUNT", str(_SPIN_COUNT)),
    }


def thread_count(base: Mapping[str, str] | None = None) -> int:
    """Threads that a server computes with: one for each physical core, or fewer if asked for.

    Args:
        base: the environment it will be started with; this process's by default.
    """
    base = os.environ if base is None else base
    cores = physical_cores()
    asked = base.get("OMP_NUM_THREADS", "")
    return min(int(asked), cores) if asked.isdecimal() and int(asked) > 0 else cores


def activate() -> None:
    """Give this process, and the ones it will start, the kernels of this package.

    For users of ``sglang.Engine``. Must come before the first import of torch or SGLang.

    Raises:
        EngineError: SGLang or its CUDA kernels are already imported.
    """
    for name in ("sglang", "sgl_kernel"):
        if name in sys.modules and not _from_overlay(name):
            raise EngineError(f"activate() must come before the first import of {name}")
    os.environ.update(environment())
    if str(OVERLAY) not in sys.path:
        sys.path.insert(0, str(OVERLAY))
    importlib.import_module("autospec_cpu_hook").install()


def _from_overlay(name: str) -> bool:
    origin = getattr(sys.modules[name], "__file__", None)
    return origin is not None and OVERLAY in Path(origin).parents
