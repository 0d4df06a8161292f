"""Documents that would otherwise go stale."""

from __future__ import annotations

import re
from pathlib import Path

from autospec.cli import cli

ROOT = Path(__file__).parent.parent


def test_structure_has_each_module_and_no_other() -> None:
    """The map names every module once."""
    text = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `([\w/]+\.py)` \|", text, re.MULTILINE)
    modules = {
        str(path.relative_to(ROOT / "autospec"))
        for path in (ROOT / "autospec").rglob("*.py")
        if path.name != "__init__.py" and "overlay" not in path.parts
    }
    assert sorted(listed) == sorted(modules)


def test_readme_names_every_command_and_no_other() -> None:
    """The README shows each command of the tool."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"autospec (\w+) ", text)) & {*cli.commands, "bench", "compare"}
    assert shown == set(cli.commands)
