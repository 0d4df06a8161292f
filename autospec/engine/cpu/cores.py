"""How many CPU cores this process may use."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["physical_cores"]

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def physical_cores(cpus: Path = _CPUS, quota: Path = _QUOTA) -> int:
    """The number of physical cores this process may use, at least 1.

    Two hardware threads of one core count once; a cgroup's CPU quota bounds the number.

    Args:
        cpus: the kernel's folder of CPUs.
        quota: the cgroup's ``cpu.max`` file.
    """
    allowed = _allowed_cpus()
    cores = {_core(cpus / f"cpu{cpu}" / "topology", cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota_cores(quota, len(cores))))


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _core(topology: Path, cpu: int) -> tuple[str, str]:
    try:
        package = (topology / "physical_package_id").read_text().strip()
        return package, (topology / "core_id").read_text().strip()
    except OSError:
        return "cpu", str(cpu)


def _quota_cores(quota: Path, unbounded: int) -> int:
    try:
        limit, period = quota.read_text().split()
        return max(1, int(limit) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        return unbounded
