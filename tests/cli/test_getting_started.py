"""The commands of docs/getting-started.md, run as they stand, on the fake engine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from autospec.profile import Profile, load_profile, save_profile
from tests.cli.conftest import Run, write_model, write_prompts
from tests.report.synthetic import write_study

DOCUMENT = Path(__file__).parents[2] / "docs" / "getting-started.md"
#: Run by other tests: they start SGLang, or a server that does not end.
_ELSEWHERE = ("make demo", "autospec serve", "python -m sglang.launch_server")


def blocks(language: str) -> list[str]:
    """The document's blocks of code in a language."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [code for name, code in found if name == language]


def commands() -> list[str]:
    """Each command, a line each."""
    lines = [line for block in blocks("") for line in block.splitlines() if line]
    return [line for line in lines if not line.startswith(_ELSEWHERE)]


@pytest.fixture
def folder(tmp_path: Path, profile: Profile) -> Path:
    """What a reader has at this point: a demo study, a model, a draft model and prompts."""
    write_study(tmp_path / "autospec-studies" / "demo", 4)
    save_profile(tmp_path / "demo.yaml", profile)
    (tmp_path / "models").mkdir()
    write_model(tmp_path / "models" / "llama")
    write_model(tmp_path / "models" / "draft")
    write_prompts(tmp_path / "traffic.jsonl")
    return tmp_path


def test_every_command_works_in_the_order_of_the_text(folder: Path, run: Run) -> None:
    """From the demo's report to another engine's file; the last profile is the tuned one."""
    ran = commands()
    assert len(ran) >= 8
    for line in ran:
        program, *words = shlex.split(line)
        assert program == "autospec", line
        extra: list[str] = []
        if words[0] == "tune":
            # A study of a few seconds instead of 45 minutes.
            extra = ["--device", "cpu", "--max-trials", "2", "--max-new-tokens", "8"]
            extra += ["--requests-per-pass", "4", "--confirm-rounds", "1"]
        result = run(*words, *extra)
        expected = (0, 1) if words[0] == "doctor" else (0,)
        assert result.exit_code in expected, f"{line}: {result.output}"
    assert (folder / "report.html").is_file()
    assert (folder / "vllm.yaml").is_file()
    assert load_profile(folder / "llama.yaml").target.model == str(folder / "models" / "llama")


def test_python_blocks_run(folder: Path) -> None:
    """As they stand, beside a profile."""
    (folder / "llama.yaml").write_text((folder / "demo.yaml").read_text())
    for block in blocks("python"):
        done = subprocess.run(
            [sys.executable, "-c", block],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "faster" in done.stdout


def test_links_of_the_document_lead_somewhere() -> None:
    """Every file it names is there."""
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", DOCUMENT.read_text(encoding="utf-8")):
        assert (DOCUMENT.parent / target).is_file(), target
