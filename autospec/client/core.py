"""One request from its beginning to its end, without the input and output of the transports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httpx

from autospec.client.exchange import Exchange
from autospec.client.failures import as_request_error
from autospec.client.router import Router
from autospec.client.servers import Sending, Servers
from autospec.engine import answers
from autospec.engine.answers import DetailsFilter, Drafts, DraftsReader
from autospec.errors import InputError, WireError

__all__ = ["Core", "Reading", "Waits", "is_stream", "with_read_timeout"]

#: Endpoints that both servers answer alike, without generating.
_ALIKE: Final = frozenset({"/v1/tokenize", "/v1/models", "/model_info"})
#: A connection that broke before the first byte: idle for too long, or the server died.
_BROKEN: Final = (httpx.ReadError, httpx.WriteError, httpx.CloseError, httpx.RemoteProtocolError)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long a server is waited for if there is another one, in s.

    Attributes:
        stream_start_s: for the first byte of a stream; after the same time without any answer to
            those who wait, a server is looked at before it is sent more.
        answer_s: for an answer that is no stream; None for as long as the request itself allows.
        look_s: for a sign of life of a server that is looked at.
    """

    stream_start_s: float | None = 60.0
    answer_s: float | None = None
    look_s: float = 2.0

    def __post_init__(self) -> None:
        for name in ("stream_start_s", "answer_s", "look_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise InputError(f"{name} is {value}, must be above 0")


class Reading:
    """Reads what a stream says of drafts as it passes."""

    __slots__ = ("_filter", "_reader")

    def __init__(self, sending: Sending, exchange: Exchange) -> None:
        self._filter = DetailsFilter() if sending.asked else None
        reads = exchange.path == "/generate" and exchange.target == "speculative"
        self._reader = DraftsReader() if reads else None

    def feed(self, piece: bytes) -> bytes:
        """Take a piece of a stream; gives what the user gets."""
        if self._filter is not None:
            return self._filter.feed(piece)
        if self._reader is not None:
            self._reader.feed(piece)
        return piece

    def rest(self) -> bytes:
        """What the user gets besides when the stream has ended."""
        return self._filter.close() if self._filter is not None else b""

    def drafts(self) -> Drafts | WireError | None:
        """What was said."""
        reader = self._reader if self._filter is None else self._filter.reader
        try:
            return None if reader is None else reader.read()
        except WireError as error:
            return error


class Core:
    """Decisions of both transports, without their input and output."""

    def __init__(self, servers: Servers, router: Router, waits: Waits) -> None:
        self.servers = servers
        self.router = router
        self.waits = waits

    def begin(self, request: httpx.Request) -> tuple[Exchange | None, bytes | None]:
        """A request of the user, and its body; None where it goes as it is addressed."""
        path = self.servers.path_of(request.url)
        if path is None:
            return None, None
        self.servers.authorise(request)
        generates = request.method == "POST" and path in answers.GENERATION_PATHS
        if not generates and path not in _ALIKE:
            return None, None
        body = request.read() if isinstance(request.stream, httpx.ByteStream) else None
        streamed = body is not None and answers.wants_stream(body)
        exchange = self.router.begin(path, generates=generates, streamed=streamed)
        if body is None:
            # What can be read but once can be sent but once.
            exchange.reserve, exchange.resent = [], True
        return exchange, body

    def health(self, exchange: Exchange) -> httpx.Request:
        """The request that tells whether a server is back."""
        return self.servers.health(exchange.target, answers.HEALTH, self.waits.look_s)

    def send(
        self, request: httpx.Request, exchange: Exchange, body: bytes | None
    ) -> tuple[Sending, float | None]:
        """The request as it goes out, and the limit for the first byte of its answer, in s."""
        exchange.attempts += 1
        sending = self.servers.address(request, exchange.path, exchange.target, body)
        waits = self.waits
        limit = waits.stream_start_s if exchange.streamed else waits.answer_s
        return sending, limit if exchange.reserve else None

    def failed(
        self, exchange: Exchange, error: httpx.TransportError
    ) -> httpx.TransportError | None:
        """An attempt came to nothing; gives the user's error if it was the last."""
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
        if self.router.failed(
            exchange,
            reason,
            unreachable=isinstance(error, httpx.ConnectError | httpx.ConnectTimeout),
            broken=isinstance(error, _BROKEN),
        ):
            return None
        if not self.router.has_reserve:
            exchange.failures += ("there is no plain_url to go to",)
        text = f"{exchange.path}: no answer: {'; '.join(exchange.failures)}"
        return as_request_error(error, text)

    def refused(self, exchange: Exchange, status: int | None) -> bool:
        """Whether an answer is the server's failure and another server is to be asked."""
        return (
            status is not None
            and status >= 500
            and bool(exchange.reserve)
            and self.router.failed(exchange, f"HTTP {status}")
        )

    def whole(
        self, exchange: Exchange, sending: Sending, response: httpx.Response, body: bytes
    ) -> None:
        """An answer that is no stream, for the user."""
        self.router.heard(exchange)
        drafts: Drafts | WireError | None = None
        if response.status_code == 200 and exchange.target == "speculative":
            try:
                drafts = answers.read_drafts(body)
            except WireError as error:
                drafts = error
        if sending.asked:
            shown = answers.without_details(body)
            if len(shown) != len(body):
                body = shown
                response.headers["Content-Length"] = str(len(body))
        response.stream = httpx.ByteStream(body)
        self.deliver(exchange, response)
        self._refusal(exchange, response.status_code)
        self.router.ended(exchange, drafts)

    def deliver(self, exchange: Exchange, response: httpx.Response) -> None:
        """Say on an answer who gave it."""
        exchange.status = response.status_code
        response.extensions = {**response.extensions, "autospec.server": exchange.target}

    def _refusal(self, exchange: Exchange, status: int) -> None:
        if status >= 500:
            self.router.broke(exchange, f"HTTP {status}")

    def broke(self, exchange: Exchange, error: httpx.TransportError) -> httpx.TransportError:
        """A stream broke off under the user's hands: the user's error."""
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
        self.router.broke(exchange, reason)
        self.router.given_up(exchange, failed=True)
        text = (
            f"{exchange.path}: the {exchange.target} server's answer broke off ({reason}); it had "
            "begun, so it is not asked for again"
        )
        return as_request_error(error, text)


def is_stream(response: httpx.Response) -> bool:
    """Whether an answer comes event by event."""
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


def with_read_timeout(request: httpx.Request, limit_s: float) -> dict[str, Any]:
    """Limit the wait for the begin of an answer.

    Args:
        request: gets timeouts of its own, in s.
        limit_s: the limit.

    Returns:
        The request's timeouts, with the user's own ``read`` under ``body``: putting it back before
        the body is read gives the body its own time.
    """
    timeouts = dict(request.extensions.get("timeout", {}))
    own = timeouts.get("read")
    timeouts["body"] = own
    timeouts["read"] = limit_s if own is None else min(own, limit_s)
    request.extensions = {**request.extensions, "timeout": timeouts}
    return timeouts
