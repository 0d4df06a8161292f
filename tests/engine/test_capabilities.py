"""What is found out about the machine and the engine."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from autospec.engine import capabilities
from autospec.engine.capabilities import SUPPORTED_SGLANG, detect, require_sglang
from autospec.errors import EngineMissingError

TWO_GPUS = "NVIDIA H100 80GB HBM3, 570.1, 81559\nNVIDIA H100 80GB HBM3, 570.1, 81559\n"


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for nvidia-smi, alone on the path, whose body the test writes."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path / "nvidia-smi"


def _write(driver: Path, body: str) -> None:
    driver.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    driver.chmod(0o755)


def _answer(driver: Path, text: str) -> None:
    (driver.parent / "answer").write_text(text, encoding="utf-8")
    _write(driver, f'echo "$@" > {driver.parent}/asked; cat {driver.parent}/answer')


def _versions(monkeypatch: pytest.MonkeyPatch, **installed: str) -> None:
    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)


def test_gpus_are_taken_where_the_driver_shows_them(driver: Path) -> None:
    """Name, count, driver and the memory of one GPU in GiB."""
    _answer(driver, TWO_GPUS)

    found = detect()

    assert (found.device, found.accelerator) == ("cuda", "NVIDIA H100 80GB HBM3")
    assert (found.accelerator_count, found.driver) == (2, "570.1")
    assert found.memory_gib == 79.6
    assert "-i" not in (driver.parent / "asked").read_text(encoding="utf-8").split()


def test_only_visible_gpus_are_asked_for(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA_VISIBLE_DEVICES goes to the driver; an empty one hides every GPU."""
    _answer(driver, TWO_GPUS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    detect()
    assert (driver.parent / "asked").read_text(encoding="utf-8").split()[-2:] == ["-i", "1,3"]

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert detect().device == "cpu"


def test_different_gpus_are_all_named(driver: Path) -> None:
    """A figure from two kinds of GPU is not one kind's."""
    _answer(driver, "H100, 570.1, 81559\nA100, 570.1, 40960\nH100, 570.1, 81559\n")

    found = detect()

    assert (found.accelerator, found.accelerator_count) == ("H100 + A100", 3)


@pytest.mark.parametrize("body", ["exit 9", "echo 'No devices were found'", "echo 'a, b, [N/A]'"])
def test_a_driver_without_gpus_means_the_cpu(driver: Path, body: str) -> None:
    """A failing driver and an answer that shows no GPU are no error."""
    _write(driver, body)

    assert detect().device == "cpu"


def test_a_driver_that_hangs_is_given_up(driver: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The query has its own time limit."""
    _write(driver, "exec sleep 30")
    monkeypatch.setattr(capabilities, "_QUERY_TIMEOUT_S", 0.2)

    assert detect().device == "cpu"


def test_the_cpu_is_described(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its model name, the cores at hand and the machine's memory; the GPU is left alone."""
    _answer(driver, TWO_GPUS)
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n", encoding="utf-8")
    monkeypatch.setattr(capabilities, "_CPUINFO", info)
    for core, governor in enumerate(["powersave", "performance", "powersave"]):
        file = tmp_path / f"cpu{core}" / "cpufreq" / "scaling_governor"
        file.parent.mkdir(parents=True)
        file.write_text(f"{governor}\n", encoding="utf-8")
    monkeypatch.setattr(capabilities, "_GOVERNORS", tmp_path)

    found = detect("cpu")

    assert (found.device, found.accelerator, found.accelerator_count) == (
        "cpu",
        "Some CPU @ 2 GHz",
        1,
    )
    assert found.driver == ""
    assert found.cpu == "Some CPU @ 2 GHz"
    assert found.cpu_governor == "performance, powersave"
    assert found.kernel == f"{platform.system()} {platform.release()}"
    assert found.os
    assert found.cpu_count >= 1
    assert found.memory_gib > 0
    assert found.python_version == platform.python_version()


@pytest.mark.parametrize(
    ("lines", "details"),
    [
        ("cpu family : 23\nmodel : 1\nflags : fpu avx avx2", " (family 23 model 1, AVX2)"),
        (
            "cpu family : 25\nmodel : 17\nflags : avx2 avx512f avx512_bf16",
            " (family 25 model 17, AVX-512 BF16)",
        ),
        ("flags : fpu sse2", ""),
    ],
)
def test_cpus_of_one_name_are_told_apart(
    lines: str, details: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measurements of one say nothing of the other."""
    info = tmp_path / "cpuinfo"
    info.write_text(f"model name : Some CPU\n{lines}\nmodel name : other\n", encoding="utf-8")
    monkeypatch.setattr(capabilities, "_CPUINFO", info)
    assert detect("cpu").accelerator == f"Some CPU{details}"


def test_a_machine_without_cpuinfo_still_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where /proc is missing, the platform's word is taken."""
    monkeypatch.setattr(capabilities, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(capabilities, "_GOVERNORS", tmp_path / "none")

    assert detect("cpu").accelerator
    assert detect("cpu").cpu_governor == ""


def test_other_devices_go_by_their_own_name(driver: Path) -> None:
    """A device that cannot be asked is described as far as it is known."""
    found = detect("npu")

    assert (found.device, found.accelerator, found.accelerator_count) == ("npu", "npu", 1)


def test_versions_are_empty_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is no error here."""
    _versions(monkeypatch, torch="2.9.1")

    found = detect("cpu")

    assert (found.sglang_version, found.torch_version) == ("", "2.9.1")


def test_the_supported_engine_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is given back."""
    _versions(monkeypatch, sglang=SUPPORTED_SGLANG)

    assert require_sglang() == SUPPORTED_SGLANG


def test_a_missing_engine_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line with the command."""
    _versions(monkeypatch)

    with pytest.raises(EngineMissingError, match=r"pip install 'sglang-autospec\[sglang\]'"):
        require_sglang()


def test_another_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found and needed version stand in the message."""
    _versions(monkeypatch, sglang="0.4.0")

    with pytest.raises(EngineMissingError, match=f"0.4.0 is installed.*needs {SUPPORTED_SGLANG}"):
        require_sglang()


def test_nothing_heavy_is_imported() -> None:
    """Looking at the machine and the flags loads neither torch nor SGLang nor the hub."""
    code = (
        "import sys, autospec.engine.constraints, autospec.engine.offline, "
        "autospec.engine.capabilities as c; c.detect('cpu'); "
        "print(sorted({'torch', 'sglang', 'transformers', 'huggingface_hub', 'tokenizers'}"
        " & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"
