"""Where autospec keeps files between runs."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["CACHE_VARIABLE", "cache_dir"]

#: A folder for everything autospec keeps between runs.
CACHE_VARIABLE = "AUTOSPEC_CACHE"


def cache_dir() -> Path:
    """The folder for what autospec keeps between runs; it need not exist yet.

    ``$AUTOSPEC_CACHE``, else ``autospec`` in ``$XDG_CACHE_HOME``, else in ``~/.cache``.
    """
    if own := os.environ.get(CACHE_VARIABLE):
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG rules say that a relative path is to be ignored.
    base = Path(shared) if Path(shared).is_absolute() else Path("~/.cache").expanduser()
    return base / "autospec"
