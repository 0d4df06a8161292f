"""Imports point one way, and each third-party package has one home."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "autospec"

#: Layer by layer, lowest first; a module may import its own part and any layer below.
LAYERS = (
    ("errors",),
    ("argv", "config", "folders", "shipped"),
    ("measurement", "schema"),
    ("evidence", "metrics"),
    ("breakdown", "fidelity"),
    ("profile",),
    ("control", "demo", "engine", "measure", "tune"),
    ("plugin",),
    ("client", "tuning"),
    ("bench", "doctor", "exports", "watch"),
    ("report",),
    ("cli",),
)

#: Package -> where it may be imported.
HOMES = {
    "skopt": ("tune/gp.py",),
    "sklearn": ("tune/gp.py",),
    "sglang": ("engine/cpu/", "engine/offline.py", "plugin/"),
    "torch": ("engine/cpu/", "demo.py", "plugin/"),
    "sgl_kernel": ("engine/cpu/",),
    "click": ("cli/",),
    "yaml": ("schema.py",),
    "aiohttp": ("engine/client.py",),
    "httpx": ("client/",),
    "sqlite3": ("tune/database.py", "tune/study.py"),
    "rich": ("report/",),
    "matplotlib": ("report/figures.py",),
    "jinja2": ("report/page.py",),
    "markupsafe": ("report/page.py",),
    "scipy": ("measure/robust.py", "tune/steptime.py"),
}

MODULES = sorted(ROOT.rglob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(name: str) -> str | None:
    """The part of autospec that a module belongs to; None for the package itself."""
    pieces = name.split(".")
    return pieces[1] if pieces[0] == "autospec" and len(pieces) > 1 else None


def level(part: str) -> int | None:
    """The layer's number; None for what is no module but a name of the package."""
    return next((i for i, layer in enumerate(LAYERS) if part in layer), None)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    """No module imports from its own layer's other parts or from a layer above."""
    here = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if here == "__init__":
        return
    mine = level(here)
    assert mine is not None, f"{here} belongs to no layer"
    for name in imports(path):
        part = part_of(name)
        if part is None or part == here:
            continue
        theirs = level(part)
        assert theirs is None or theirs < mine, f"{here} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_third_parties_have_one_home(path: Path) -> None:
    """A package that may change under us is met in one place."""
    here = str(path.relative_to(ROOT))
    for name in imports(path):
        homes = HOMES.get(name.split(".")[0])
        assert homes is None or here.startswith(homes), f"{here} imports {name}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_only_the_engine_starts_servers_and_only_cli_prints(path: Path) -> None:
    """The library returns and raises; it neither prints nor exits."""
    here = str(path.relative_to(ROOT))
    calls = {
        node.func.id if isinstance(node.func, ast.Name) else ""
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    }
    assert "print" not in calls, here
    assert "exit" not in calls, here
