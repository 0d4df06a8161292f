"""Threads and ranks of a server process."""

from __future__ import annotations

import os

import torch

from autospec.engine.cpu.checks import check
from autospec.engine.cpu.cores import physical_cores
from autospec.engine.cpu.heads import pack_tied_heads

__all__ = ["init_cpu_threads_env", "initialize", "use_threads_for"]

# Below this a second thread costs more to wake than it saves; on a machine that does anything else,
# far more. A layer of a large model is above it with a single token.
_PARALLEL_PRODUCTS = 1 << 24

_threads = torch.get_num_threads()


def init_cpu_threads_env(cpu_ids: str) -> str:
    """Use as many threads as ``OMP_NUM_THREADS`` says, at most one for each physical core.

    Args:
        cpu_ids: the CPUs SGLang gives this rank, as ``0-3,8``; with one rank these are all, so
            nothing is bound to them.

    Returns:
        What was set, in words.
    """
    cores = physical_cores()
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = min(int(asked), cores) if asked.isdecimal() and int(asked) > 0 else cores
    torch.set_num_threads(threads)
    global _threads  # noqa: PLW0603 - the number of threads is one for the process
    _threads = threads
    return f"{threads} threads on CPUs {cpu_ids}"


def use_threads_for(products: int) -> None:
    """Run what follows on all threads if it is worth it, else on one.

    The number of threads is one for the whole process, so this also decides for the small
    operations behind a layer.

    Args:
        products: multiplications of the work at hand.
    """
    wanted = _threads if products >= _PARALLEL_PRODUCTS else 1
    if torch.get_num_threads() != wanted:
        torch.set_num_threads(wanted)


def initialize(size: int, rank: int) -> None:
    """Prepare for several ranks, of which there can be only one, before the model is loaded.

    Raises:
        EngineError: tensor parallelism is asked for.
    """
    check(
        size == 1,
        "initialize",
        f"tensor parallel size {size} (rank {rank}) must be 1: the CPU engine runs one rank",
    )
    pack_tied_heads()
