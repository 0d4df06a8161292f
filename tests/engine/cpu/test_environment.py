"""How a server process comes by the kernels, and everything else does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autospec.engine import cpu
from autospec.engine.cpu import environment, needed
from autospec.engine.cpu.cores import physical_cores


def run(code: str, **variables: str) -> str:
    """What a fresh Python process with the CPU engine's environment prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment(), **variables},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.strip()


def test_only_a_cpu_device_needs_it() -> None:
    """A CUDA server never gets the overlay."""
    assert not needed("cuda")
    assert not needed("xpu")


@pytest.mark.parametrize("library", ["common_ops.abi3.so", None])
def test_a_native_cpu_build_is_preferred(
    library: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The overlay is needed only when no CPU build of sgl_kernel is importable."""
    (tmp_path / "sgl_kernel").mkdir()
    (tmp_path / "sgl_kernel" / "__init__.py").touch()
    if library is not None:
        (tmp_path / "sgl_kernel" / library).touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert needed("cpu") == (library is None)


def test_the_overlay_itself_is_no_native_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the overlay on the path already, it is still needed."""
    monkeypatch.setattr(sys, "path", [str(cpu.OVERLAY)])
    assert needed("cpu")


def test_the_path_is_prepended_once() -> None:
    """What was on PYTHONPATH stays behind the overlay; the overlay is never there twice."""
    first = environment({"PYTHONPATH": f"/a{os.pathsep}/b"})["PYTHONPATH"]
    assert first.split(os.pathsep) == [str(cpu.OVERLAY), "/a", "/b"]
    assert environment({"PYTHONPATH": first})["PYTHONPATH"] == first
    assert environment({})["PYTHONPATH"] == str(cpu.OVERLAY)


@pytest.mark.parametrize(
    ("asked", "threads"), [("1", "1"), ("100000", None), ("0", None), ("many", None), ("", None)]
)
def test_threads_are_at_most_the_cores(asked: str, threads: str | None) -> None:
    """A smaller number of threads is kept, any other becomes the number of cores."""
    got = environment({"OMP_NUM_THREADS": asked})["OMP_NUM_THREADS"]
    assert got == (threads or str(physical_cores()))


@pytest.mark.parametrize(
    ("given", "tunables"),
    [
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=3", "glibc.malloc.check=3:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_huge_pages_are_asked_for_unless_decided(given: str, tunables: str) -> None:
    """Other malloc settings stay, and so does one's own choice about huge pages."""
    assert environment({"GLIBC_TUNABLES": given})["GLIBC_TUNABLES"] == tunables


def make_cpus(folder: Path, cores: list[int]) -> None:
    """A kernel folder in which CPU i belongs to ``cores[i]``."""
    for cpu_id, core in enumerate(cores):
        topology = folder / f"cpu{cpu_id}" / "topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text("0\n")
        (topology / "core_id").write_text(f"{core}\n")


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("", 4)]
)
def test_hardware_threads_and_quotas_are_no_cores(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads of a core count once, and a cgroup's quota bounds the number."""
    make_cpus(tmp_path, [0, 1, 2, 3, 0, 1, 2, 3])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))
    (tmp_path / "cpu.max").write_text(quota)
    assert physical_cores(tmp_path, tmp_path / "cpu.max") == cores


def test_without_topology_each_cpu_is_a_core(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel tells nothing, the allowed CPUs are counted."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {2, 5, 7})
    assert physical_cores(tmp_path, tmp_path / "none") == 3


def test_making_the_environment_loads_no_torch() -> None:
    """Only a server process imports torch."""
    code = "import sys, autospec.engine.cpu as c; c.environment(); c.needed('cpu'); "
    assert run(code + "print('torch' in sys.modules)") == "False"


def test_a_server_process_finds_the_kernels() -> None:
    """Imports by name, torch.ops and the submodule are all there; others are refused when used."""
    code = """
import sgl_kernel, sgl_kernel.speculative as speculative, torch
from sgl_kernel import build_tree_kernel_efficient_cpu, fused_marlin_moe
print(callable(build_tree_kernel_efficient_cpu),
      callable(speculative.reconstruct_indices_from_tree_mask),
      hasattr(torch.ops.sgl_kernel, "convert_weight_packed"),
      hasattr(torch.ops.sgl_kernel, "fused_qk_norm_cpu"))
for use in (fused_marlin_moe, torch.ops.sgl_kernel.conv3d_embed_cpu,
            lambda: torch.ops.sgl_kernel.gelu_and_mul_cpu):
    try:
        use()
    except Exception as error:
        print(str(error).split()[0])
"""
    assert run(code).splitlines() == [
        "True True True False",
        "sgl_kernel.fused_marlin_moe",
        "sgl_kernel.conv3d_embed_cpu",
        "sgl_kernel.gelu_and_mul_cpu",
    ]


def make_sglang(folder: Path) -> None:
    """A package with the one line of SGLang that asks PyTorch for AMX tiles, and what it asks."""
    package = folder / "sglang" / "srt" / "utils"
    package.mkdir(parents=True)
    for part in (folder / "sglang", folder / "sglang" / "srt", package):
        (part / "__init__.py").touch()
    (folder / "torch.py").write_text("class cpu:\n    _is_amx_tile_supported = lambda: False\n")
    (package / "common.py").write_text("import torch\ntiles = torch.cpu._is_amx_tile_supported()\n")


def test_sglang_is_told_of_tiles(tmp_path: Path) -> None:
    """The CPU path is taken on a CPU without AMX too."""
    make_sglang(tmp_path)
    path = os.pathsep.join([str(cpu.OVERLAY), str(tmp_path)])
    code = "import sglang.srt.utils.common as c; print(c.tiles)"
    assert run(code, PYTHONPATH=path) == "True"


def test_activation_reaches_this_process_and_its_children(tmp_path: Path) -> None:
    """After activate(), SGLang here and in child processes finds the kernels."""
    make_sglang(tmp_path)
    child = (
        "import importlib.util as u, sglang.srt.utils.common as c; "
        "print(c.tiles, u.find_spec('sgl_kernel').origin)"
    )
    code = f"""
import subprocess, sys
from autospec.engine.cpu import activate
activate(); activate()
print(subprocess.run([sys.executable, "-c", {child!r}], capture_output=True, text=True).stdout)
{child}
"""
    kernels = str(cpu.OVERLAY / "sgl_kernel" / "__init__.py")
    assert run(code, PYTHONPATH=str(tmp_path)).split() == ["True", kernels] * 2


def test_activation_after_sglang_is_refused(tmp_path: Path) -> None:
    """SGLang decides when it is imported, so a later activate() raises an error."""
    make_sglang(tmp_path)
    code = """
import sglang
from autospec.engine.cpu import activate
try:
    activate()
except Exception as error:
    print(error)
"""
    assert "before the first import of sglang" in run(code, PYTHONPATH=str(tmp_path))


def test_a_shadowed_sitecustomize_still_runs(tmp_path: Path) -> None:
    """The overlay's sitecustomize runs the one that would have run without it."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    path = os.pathsep.join([str(cpu.OVERLAY), str(tmp_path)])
    assert run("pass", PYTHONPATH=path) == "mine"
