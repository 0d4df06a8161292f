"""Option types and options that several commands share."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Final

import click

__all__ = [
    "CONCURRENCY",
    "DRAFT",
    "PROFILE",
    "RATES",
    "api_key_option",
    "force_option",
    "json_option",
    "model_option",
    "notify",
    "read_api_key",
    "shipped_profile",
]


class _Concurrency(click.ParamType[tuple[int, ...]]):
    """``1,8,32``: the loads to measure, as requests in flight."""

    name = "N,N,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdigit() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} must be whole numbers above 0, like 1,8,32", param, ctx)
        return tuple(sorted({int(part) for part in parts}))


class _Draft(click.ParamType[tuple[str, str]]):
    """``ALGO=PATH``: a draft model and the method that uses it."""

    name = "ALGO=PATH"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        algorithm, separator, path = str(value).partition("=")
        if not separator or not algorithm or not path:
            self.fail(f"{value!r} must be ALGO=PATH, like EAGLE3=models/draft", param, ctx)
        return algorithm.upper(), path


class _Rates(click.ParamType[tuple[float, ...]]):
    """``0.5,2``: loads as requests that arrive in a second."""

    name = "R,R,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        if isinstance(value, tuple):
            return value
        try:
            rates = {float(part) for part in str(value).split(",")}
        except ValueError:
            rates = set()
        if not rates or not all(0 < rate < math.inf for rate in rates):
            self.fail(f"{value!r} must be numbers above 0, like 0.5,2", param, ctx)
        return tuple(sorted(rates))


def shipped_profile(name: str) -> Path | None:
    """The file of a shipped profile, unless a file or folder here has its name."""
    from autospec.shipped import profile_path

    return None if Path(name).exists() else profile_path(name)


class _Profile(click.Path):
    """A profile's file, or the name of a shipped one, which no file of that name hides."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return shipped_profile(str(value)) or Path(str(super().convert(value, param, ctx)))


CONCURRENCY = _Concurrency()
DRAFT = _Draft()
PROFILE = _Profile()
RATES = _Rates()

_API_KEY: Final = "AUTOSPEC_API_KEY"


def read_api_key(variable: str) -> str | None:
    """The key of a server by address, from the environment variable of ``--api-key-env``."""
    key = os.environ.get(variable)
    if key is None and variable != _API_KEY:
        raise click.UsageError(f"--api-key-env {variable}: there is no such environment variable")
    return key or None


def notify(line: str) -> None:
    """Say what is going on while the user waits."""
    click.echo(line, err=True)


api_key_option = click.option(
    "--api-key-env",
    default=_API_KEY,
    show_default=True,
    metavar="NAME",
    help="Environment variable with the key of a server by address.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
force_option = click.option(
    "--force", is_flag=True, help="Use the profile though model, machine or engine differ."
)
model_option = click.option(
    "--model", metavar="PATH", help="Where the profile's model lies on this machine."
)
