"""What people expect of a command-line program."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from autospec.cli import cli
from autospec.profile import save_profile
from tests.test_profile import make_profile

PROGRAM = [sys.executable, "-c", "from autospec.cli import main; main()"]


def run(*arguments: str, **environment: str) -> str:
    """The program as a process; gives its standard output."""
    done = subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )
    return done.stdout


def test_version_is_said() -> None:
    """``--version`` names the program and its version."""
    result = CliRunner().invoke(cli, ["--version"])
    assert result.stdout == f"autospec, version {version('sglang-autospec')}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_printed(shell: str) -> None:
    """The script asks this program for the words."""
    assert "_AUTOSPEC_COMPLETE" in run("completion", shell)


def test_words_are_completed() -> None:
    """What the script asks for: every command that begins so, and its options."""
    asked = {"_AUTOSPEC_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    words = run(**asked, COMP_WORDS="autospec re").split()
    assert {"plain,replay", "plain,report"} <= set(words)
    assert "plain,tune" not in words
    asked["COMP_CWORD"] = "3"
    assert "plain,vllm" in run(**asked, COMP_WORDS="autospec export --format v").split()


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1", "FORCE_COLOR": ""}])
def test_no_colours_where_nobody_sees_them(tmp_path: Path, environment: dict[str, str]) -> None:
    """A pipe gets plain text, and so does who asks for it."""
    save_profile(tmp_path / "p.yaml", make_profile())
    for command in (["show", str(tmp_path / "p.yaml")], ["doctor", "--device", "cpu"]):
        assert "\x1b" not in run(*command, **environment)
