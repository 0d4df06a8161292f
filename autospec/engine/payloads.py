"""Reads JSON that a server promised to send: every step says where it stood and what was wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from autospec.errors import WireError

__all__ = ["decode_json", "item", "mapping", "numbers", "shorten"]

T = TypeVar("T")
_ERROR_LENGTH: Final = 300


def decode_json(payload: bytes, where: str) -> Any:
    """Decode JSON.

    Raises:
        WireError: it is not JSON.
    """
    try:
        return json.loads(payload)
    except ValueError as error:
        # The payload may hold an answer, so it is not shown.
        raise WireError(f"{where}: {len(payload)} bytes that are not JSON") from error


def shorten(value: object) -> str:
    """One line of an error, cut where it would drown the rest."""
    text = " ".join(str(value or "no reason given").split())
    return text if len(text) <= _ERROR_LENGTH else text[: _ERROR_LENGTH - 3] + "..."


def mapping(data: Any, where: str) -> dict[str, Any]:
    """The data, if they are a mapping.

    Raises:
        WireError: they are not.
    """
    if not isinstance(data, dict):
        raise WireError(f"{where}: must be a mapping, is {type(data).__name__}")
    return data


_MISSING: Final = object()


def item(
    data: Mapping[str, Any], key: str, kind: type[T], where: str, *, default: Any = _MISSING
) -> Any:
    """The value of a key.

    Raises:
        WireError: it is missing without a default, or of another type.
    """
    value = data.get(key)
    if value is None and default is not _MISSING:
        return default
    if key not in data:
        raise WireError(f"{where}: key {key!r} is missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise WireError(f"{where}: {key} must be {kind.__name__}, is {type(value).__name__}")
    return value


def numbers(data: Any, kind: type[T], where: str) -> tuple[T, ...]:
    """A list of numbers of one kind; whole ones pass for floats.

    Raises:
        WireError: it is no such list.
    """
    allowed = (int, float) if kind is float else (int,)
    if not isinstance(data, list) or not all(type(item) in allowed for item in data):
        raise WireError(f"{where}: must be a list of {kind.__name__} numbers")
    return tuple(data)
