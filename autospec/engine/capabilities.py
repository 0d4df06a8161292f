"""The machine and the engine version at hand, found without importing torch or SGLang."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

import psutil

from autospec.errors import EngineMissingError

__all__ = ["SUPPORTED_SGLANG", "Platform", "detect", "free_gpu_memory_gib", "require_sglang"]

#: The one SGLang version whose flags, rules and wire format this autospec knows.
SUPPORTED_SGLANG: Final = "0.5.23"
_INSTALL: Final = "pip install 'sglang-autospec[sglang]'"
_QUERY_TIMEOUT_S: Final = 20
_CPUINFO: Final = Path("/proc/cpuinfo")
#: Units that a dense layer's speed hangs on, the widest first, by the flag that Linux shows.
_UNITS: Final = {
    "amx_bf16": "AMX",
    "avx512_bf16": "AVX-512 BF16",
    "avx512f": "AVX-512",
    "avx2": "AVX2",
}
_GOVERNORS: Final = Path("/sys/devices/system/cpu")


@dataclass(frozen=True, slots=True)
class Platform:
    """What measurements here are valid for.

    Attributes:
        device: ``cuda``, ``cpu``, ...
        accelerator: model name of the GPU, or of the CPU when that is the device; the device's
            name where it cannot be asked. Different GPUs are joined by ``+``.
        accelerator_count: visible GPUs, or 1 for a CPU.
        driver: the GPU driver's version, or empty.
        cpu: model name of the host's processor.
        cpu_count: logical cores that this process may use.
        cpu_governor: how the kernel sets their frequency; empty where it does not say.
        memory_gib: memory of one GPU, or of the machine for a CPU.
        os: the system's own name for itself.
        kernel: its kernel and release.
        sglang_version: empty when it is not installed.
        torch_version: empty when it is not installed.
        python_version: of this process, which is the one that starts servers.
    """

    device: str
    accelerator: str
    accelerator_count: int
    driver: str
    cpu: str
    cpu_count: int
    cpu_governor: str
    memory_gib: float
    os: str
    kernel: str
    sglang_version: str
    torch_version: str
    python_version: str


def detect(device: str | None = None) -> Platform:
    """Describe this machine.

    Args:
        device: what servers will run on; None takes the GPU if ``nvidia-smi`` shows one, else the
            CPU.
    """
    gpus = _gpus() if device is None or device.startswith("cuda") else []
    if device is None:
        device = "cuda" if gpus else "cpu"
    driver, memory_gib = "", round(psutil.virtual_memory().total / 2**30, 1)
    cpu = _cpu_model()
    accelerator = cpu if device == "cpu" else device
    if gpus:
        accelerator = " + ".join(dict.fromkeys(name for name, _, _ in gpus))
        _, driver, mebibytes = gpus[0]
        memory_gib = round(float(mebibytes) / 1024, 1)
    return Platform(
        device=device,
        accelerator=accelerator,
        accelerator_count=max(1, len(gpus)),
        driver=driver,
        cpu=cpu,
        cpu_count=_cpu_count(),
        cpu_governor=_cpu_governor(),
        memory_gib=memory_gib,
        os=_system(),
        kernel=f"{platform.system()} {platform.release()}",
        sglang_version=_version("sglang"),
        torch_version=_version("torch"),
        python_version=platform.python_version(),
    )


def require_sglang() -> str:
    """Return the installed SGLang's version.

    Raises:
        EngineMissingError: none is installed, or one that this autospec does not know.
    """
    found = _version("sglang")
    if not found:
        raise EngineMissingError(f"SGLang is not installed: {_INSTALL}")
    if found != SUPPORTED_SGLANG:
        raise EngineMissingError(
            f"SGLang {found} is installed, this autospec needs {SUPPORTED_SGLANG}: {_INSTALL}"
        )
    return found


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


def free_gpu_memory_gib() -> list[float]:
    """Memory that nothing uses, of each GPU that CUDA would show this process."""
    rows = _query_gpus("memory.free")
    return [round(float(row[0]) / 1024, 1) for row in rows if row[0].isdigit()]


def _gpus() -> list[tuple[str, str, str]]:
    """Name, driver version and MiB of each GPU that CUDA would show this process."""
    rows = _query_gpus("name,driver_version,memory.total")
    return [(row[0], row[1], row[2]) for row in rows if len(row) == 3 and row[2].isdigit()]


def _query_gpus(fields: str) -> list[tuple[str, ...]]:
    command = shutil.which("nvidia-smi")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if command is None or visible == "":
        return []
    query = [command, f"--query-gpu={fields}"]
    query += ["--format=csv,noheader,nounits", *(["-i", visible] if visible else [])]
    try:
        answer = subprocess.run(  # noqa: S603 - the list is ours, the program is the driver's
            query, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [tuple(part.strip() for part in line.split(",")) for line in answer.stdout.splitlines()]


def _cpu_model() -> str:
    """Name of the processor, with what tells apart those that share it.

    A virtual machine may show the same name for processors of many years, of which one takes four
    times as long as another.
    """
    fields: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            key, separator, value = line.partition(":")
            if separator:
                fields.setdefault(key.strip(), value.strip())
    name = fields.get("model name") or platform.processor() or platform.machine()
    flags = fields.get("flags", "").split()
    unit = next((unit for flag, unit in _UNITS.items() if flag in flags), "")
    family, model = fields.get("cpu family"), fields.get("model")
    generation = f"family {family} model {model}" if family and model else ""
    details = ", ".join(filter(None, (generation, unit)))
    return f"{name} ({details})" if details else name


def _cpu_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_governor() -> str:
    """The governors in use, usually one; virtual machines show none."""
    names: set[str] = set()
    for file in _GOVERNORS.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        with contextlib.suppress(OSError):
            names.add(file.read_text(encoding="utf-8").strip())
    return ", ".join(sorted(names))


def _system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.platform(terse=True)
