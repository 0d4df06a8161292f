"""The accelerator, memory, disk, ports, and who else uses the machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil

from autospec.doctor.finding import Finding, blocks, fine, warns
from autospec.engine import cpu
from autospec.engine.capabilities import Platform, free_gpu_memory_gib
from autospec.engine.leftovers import FoundServer, find_servers
from autospec.engine.ports import PORTS, choose_port
from autospec.errors import PortTakenError
from autospec.folders import CACHE_VARIABLE, cache_dir

__all__ = ["check_device", "check_room", "check_servers"]

#: Least driver for each major version of CUDA's run time, by NVIDIA's compatibility table.
_LEAST_DRIVER: Final = {12: 525, 13: 580}
_LEAST_DISK_GIB: Final = 1.0
#: A share of the memory that weights may take, so that the KV cache has room.
_WEIGHTS_SHARE: Final = 0.8
#: Processes that run at once, by core, from which measurements are disturbed.
_BUSY: Final = 0.5
_OUTGOING: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


def check_device(platform: Platform) -> Iterator[Finding]:
    """The GPU and its driver, or the way a CPU takes."""
    if platform.device == "cpu":
        yield _cpu(platform)
        if platform.cpu_governor not in ("", "performance"):
            yield warns(
                "CPU",
                f"its frequency is governed by {platform.cpu_governor}, so speed changes with load",
                "cpupower frequency-set -g performance",
            )
        return
    yield fine(
        "accelerator",
        f"{platform.accelerator_count} x {platform.accelerator}, {platform.memory_gib:g} GiB each",
    )
    if platform.device == "cuda":
        yield _driver(platform)


def check_room(platform: Platform, weights_gib: float, tp_size: int) -> Iterator[Finding]:
    """Free memory against the models' weights, and free disk.

    Args:
        platform: this machine.
        weights_gib: of target and draft models together; 0 where unknown.
        tp_size: accelerators that share them.
    """
    yield _memory(platform, weights_gib / tp_size)
    for place, purpose in ((Path.cwd(), "studies"), (cache_dir(), CACHE_VARIABLE)):
        folder = next(path for path in (place, *place.parents) if path.is_dir())
        free = shutil.disk_usage(folder).free / 2**30
        if free < _LEAST_DISK_GIB:
            yield warns(
                "disk",
                f"{free:.1f} GiB free at {place} ({purpose})",
                f"make room, or set {CACHE_VARIABLE} and --study to another disk",
            )
        else:
            yield fine("disk", f"{free:.0f} GiB free at {place} ({purpose})")


def check_servers(host: str, port: int | None) -> Iterator[Finding]:
    """The port or ports, servers that run already, and how busy the machine is."""
    yield _port(host, port)
    yield from _found(find_servers())
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > _BUSY * cores:
        yield warns(
            "other work",
            f"{load:.1f} processes run at once on {cores} cores: measurements would be disturbed",
            "wait, or stop what runs",
        )
    else:
        yield fine("other work", f"{load:.1f} processes run at once on {cores} cores")


def _cpu(platform: Platform) -> Finding:
    kernels = "autospec's kernels" if cpu.needed("cpu") else "SGLang's own kernels"
    text = f"no GPU in use; {kernels} on {cpu.thread_count()} cores of {platform.accelerator}"
    return fine("CPU", f"{text}; NGRAM, STANDALONE, EAGLE, EAGLE3 and NEXTN can run")


def _driver(platform: Platform) -> Finding:
    runtime = _cuda_runtime()
    if not platform.driver:
        return blocks("driver", "nvidia-smi does not answer", "install NVIDIA's driver")
    least = _LEAST_DRIVER.get(runtime or 0)
    found = platform.driver.partition(".")[0]
    if least is not None and found.isdigit() and int(found) < least:
        return blocks(
            "driver",
            f"{platform.driver}, but CUDA {runtime} needs {least} or newer",
            f"update NVIDIA's driver to {least} or newer",
        )
    return fine("driver", f"{platform.driver}, PyTorch's CUDA is {runtime or 'unknown'}")


def _cuda_runtime() -> int | None:
    """Major version of the CUDA run time that PyTorch brought."""
    for distribution in metadata.distributions():
        name = (distribution.metadata["Name"] or "").lower()
        if name.startswith("nvidia-cuda-runtime"):
            major = distribution.version.partition(".")[0]
            return int(major) if major.isdigit() else None
    return None


def _memory(platform: Platform, weights_gib: float) -> Finding:
    free = psutil.virtual_memory().available / 2**30
    if platform.device == "cuda":
        free = min(free_gpu_memory_gib(), default=platform.memory_gib)
    need = f"; the weights take {weights_gib:.1f} GiB" if weights_gib else ""
    text = f"{free:.1f} of {platform.memory_gib:g} GiB free{need}"
    if weights_gib > free:
        return blocks("memory", text, "free memory, or use a larger --tp-size or a smaller model")
    if weights_gib > _WEIGHTS_SHARE * free:
        return warns(
            "memory", f"{text}, which leaves little for the KV cache", "a larger --tp-size"
        )
    return fine("memory", text)


def _port(host: str, port: int | None) -> Finding:
    try:
        chosen = choose_port(host, port)
    except PortTakenError as error:
        return blocks("port", str(error), "autospec serve --port with another one")
    if port is not None:
        return fine("port", f"{port} on {host} is free")
    with contextlib.suppress(OSError, ValueError):
        low, high = map(int, _OUTGOING.read_text(encoding="ascii").split())
        if low <= PORTS[-1] and high >= PORTS[0]:
            return warns(
                "port",
                f"outgoing connections take {low} to {high}, servers {PORTS[0]} to {PORTS[-1]}: "
                "one may be gone when a server wants it",
                "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
            )
    return fine("port", f"servers take one from {PORTS[0]} to {PORTS[-1]}, such as {chosen}")


def _found(servers: Sequence[FoundServer]) -> Iterator[Finding]:
    for server in servers:
        pids = " ".join(map(str, server.pids))
        held = f"{server.memory_gib:.1f} GiB of the host's memory"
        if server.ours and not server.guarded:
            yield warns(
                "leftover server",
                f"an earlier study's server outlived it and holds {held}",
                f"kill {pids}",
            )
        elif server.ours:
            yield warns(
                "running server",
                f"autospec runs one (process {server.pids[0]}), which holds {held}",
                "wait for it before you measure",
            )
        else:
            yield warns(
                "foreign server",
                f"an SGLang server (process {server.pids[0]}) shares this machine and holds {held}",
                "measure when it is stopped",
            )
    if not servers:
        yield fine("servers", "none is running, none was left behind")
