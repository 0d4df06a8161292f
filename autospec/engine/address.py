"""Addresses of servers, as users give them."""

from __future__ import annotations

from urllib.parse import urlsplit

from autospec.errors import InputError

__all__ = ["checked_url", "local_port"]


def checked_url(text: str) -> str:
    """An address without a slash at its end.

    Raises:
        InputError: it is none, or it holds what may be a secret.
    """
    try:
        parts = urlsplit(text)
        known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        known = None
    if not known:
        raise InputError("the server's address must be like http://host:port")
    if parts.username is not None or parts.query:
        # Neither is repeated here: both may hold a secret.
        raise InputError(
            f"the address of {parts.hostname} must not hold a user, password or query; a key "
            "comes from an environment variable"
        )
    return text.rstrip("/")


def local_port(url: str) -> int | None:
    """The port of a server on this machine; None for one elsewhere."""
    parts = urlsplit(url)
    if parts.hostname not in {"127.0.0.1", "localhost", "::1", "0.0.0.0"}:  # noqa: S104  # compared only
        return None
    return parts.port or (443 if parts.scheme == "https" else 80)
