"""The public surface, and what importing it must not cost."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import autospec

HEAVY = ("httpx", "torch", "sglang", "skopt", "sklearn", "scipy", "matplotlib", "transformers")


def test_public_names_are_sorted_and_there() -> None:
    """``__all__`` is the promise: sorted, complete, each name real."""
    names = autospec.__all__
    assert names == sorted(names, key=lambda name: (not name.isupper(), name))
    for name in names:
        assert getattr(autospec, name) is not None


def test_version_is_the_distributions() -> None:
    """One place says the version."""
    assert autospec.__version__ == version("sglang-autospec")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = autospec.nothing


@pytest.mark.parametrize(
    "code",
    [
        "import autospec",
        "import autospec.cli",
        "from autospec.cli import cli; cli(['--help'], standalone_mode=False)",
        "from autospec.cli import cli; cli(['tune', '--help'], standalone_mode=False)",
    ],
)
def test_import_and_help_load_nothing_heavy(code: str) -> None:
    """A user who asks for help does not wait for torch."""
    check = f"import sys; print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{check}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr.strip() == "[]"
