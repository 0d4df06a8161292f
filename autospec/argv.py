"""Keyword arguments as a command line. It knows no flag of any program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autospec.errors import ConfigError

__all__ = ["to_argv"]


def to_argv(args: Mapping[str, Any]) -> list[str]:
    """Write keyword arguments as flags.

    ``page_size=16`` becomes ``--page-size 16``, ``True`` the flag alone, a list one flag with
    several values. ``False``, ``None`` and an empty list leave the flag out. A value that begins
    with a dash is joined with ``=``, since it would be read as a flag of its own.

    Raises:
        ConfigError: a value that is no bool, number, text or list of these.
    """
    argv: list[str] = []
    for name, value in args.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        if value is True:
            argv.append(flag)
        elif isinstance(value, list | tuple):
            argv += [flag, *(_text(name, item) for item in value)] if value else []
        else:
            text = _text(name, value)
            argv += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
    return argv


def _text(name: str, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ConfigError(f"{name} is {value!r}, must be a bool, a number, text or a list of these")
    return str(value)
