"""The two servers' addresses, and one request as it is sent to either. No input or output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from autospec.client.events import Target
from autospec.engine.answers import DETAILS_PATHS, ask_for_details
from autospec.errors import InputError

__all__ = ["Sending", "Servers"]


@dataclass(slots=True)
class Sending:
    """A request as it goes out.

    Attributes:
        request: what is sent.
        asked: whether it asks for what the user did not ask for, which is to be taken out again.
    """

    request: httpx.Request
    asked: bool = False


class Servers:
    """Addresses, and what every request to them carries."""

    def __init__(
        self, url: str, plain_url: str | None, *, api_key: str | None, details: bool
    ) -> None:
        """Check the addresses.

        Args:
            url: the speculative server's.
            plain_url: the plain server's.
            api_key: sent as a bearer token, whatever else the request carries.
            details: whether OpenAI endpoints are asked for what they say of drafts.

        Raises:
            InputError: an address is none.
        """
        self._bases: dict[Target, httpx.URL] = {"speculative": _base("url", url)}
        if plain_url is not None:
            self._bases["plain"] = _base("plain_url", plain_url)
        self._key = f"Bearer {api_key}" if api_key else None
        self._details = details
        base = self._bases["speculative"]
        self._home = (base.raw_scheme, base.raw_host, base.port)
        self._prefix = base.raw_path.rstrip(b"/").decode()

    @property
    def base(self) -> httpx.URL:
        """The speculative server's address."""
        return self._bases["speculative"]

    def path_of(self, url: httpx.URL) -> str | None:
        """The endpoint below the speculative server's address; None if it is elsewhere."""
        if (url.raw_scheme, url.raw_host, url.port) != self._home:
            return None
        path = url.path
        if self._prefix:
            return path[len(self._prefix) :] if path.startswith(f"{self._prefix}/") else None
        return path

    def authorise(self, request: httpx.Request) -> None:
        """Put the key into a request of the user's."""
        if self._key is not None:
            request.headers["Authorization"] = self._key

    def address(
        self, request: httpx.Request, path: str, target: Target, body: bytes | None
    ) -> Sending:
        """The request for one of the servers; the user's own where nothing has to differ.

        Args:
            request: the user's.
            path: as ``path_of`` gives it.
            target: the server.
            body: the whole body; None if it can be read but once.
        """
        asking = None
        if self._details and body and target == "speculative" and path in DETAILS_PATHS:
            asking = ask_for_details(body)
        if target == "speculative" and asking is None:
            return Sending(request)
        headers = request.headers.copy()
        url = request.url
        if target == "plain":
            url = self._url(target, request.url)
            headers["Host"] = url.netloc.decode("ascii")
        stream: Any = request.stream
        if asking is not None:
            headers["Content-Length"] = str(len(asking))
            headers["Accept-Encoding"] = "identity"
            stream = httpx.ByteStream(asking)
        sent = httpx.Request(
            request.method, url, headers=headers, stream=stream, extensions=request.extensions
        )
        return Sending(sent, asked=asking is not None)

    def health(self, target: Target, path: str, limit_s: float) -> httpx.Request:
        """A request that tells whether a server answers."""
        timeout = httpx.Timeout(limit_s).as_dict()
        base = str(self._bases[target]).rstrip("/")
        request = httpx.Request("GET", f"{base}{path}", extensions={"timeout": timeout})
        self.authorise(request)
        return request

    def _url(self, target: Target, url: httpx.URL) -> httpx.URL:
        base = self._bases[target]
        prefix = base.raw_path.rstrip(b"/")
        raw_path = prefix + url.raw_path[len(self._prefix) :]
        return base.copy_with(raw_path=raw_path)


def _base(name: str, text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError) as error:
        raise InputError(f"{name} is {text!r}, must be an address such as http://host:30000") from (
            error
        )
    if url.scheme not in {"http", "https"} or not url.host:
        raise InputError(f"{name} is {text!r}, must begin with http:// or https:// and a host")
    if url.userinfo or url.query or url.fragment:
        raise InputError(f"{name} must be scheme, host, port and path only; keys go into api_key=")
    return url
