"""Errors of requests that no server answered: httpx's for whoever knows httpx, and autospec's too.

The ``openai`` package and other users of httpx go by the classes of httpx, so an error keeps its
own; it is a ``RequestError`` besides.
"""

from __future__ import annotations

from typing import Final

import httpx

from autospec.errors import RequestError

__all__ = ["as_request_error"]


#: By httpx's class; filled as they are met.
_KINDS: Final[dict[type, type[httpx.TransportError]]] = {}


def as_request_error(error: httpx.TransportError, message: str) -> httpx.TransportError:
    """The same kind of error with a clear message, and a ``RequestError`` besides."""
    if isinstance(error, RequestError):
        return error
    kind = type(error)
    if kind not in _KINDS:
        members = {"__module__": __name__, "__doc__": None}
        _KINDS[kind] = type(kind.__name__, (kind, RequestError), members)
    return _KINDS[kind](message)
