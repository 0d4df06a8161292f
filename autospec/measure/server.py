"""What measuring needs of a running server. ``autospec.engine`` has the real one."""

from __future__ import annotations

from typing import Protocol

from autospec.measurement import DecodeMoments, Request, RequestRecord

__all__ = ["Limits", "Server"]


class Limits(Protocol):
    """What a server says of itself that bounds a workload."""

    @property
    def max_input_tokens(self) -> int:
        """Longest prompt it takes, in tokens: the context or the KV cache, less a small reserve."""

    @property
    def max_running_requests(self) -> int:
        """Requests that it decodes at once; further ones wait in its queue."""


class Server(Protocol):
    """A running engine under one configuration."""

    async def server_info(self) -> Limits:
        """The server's limits, as it resolved them."""

    async def generate(self, request: Request) -> RequestRecord:
        """Send one request and stream its answer; a failure is a record with ``error``."""

    async def tokenize(
        self, *, text: str | None = None, messages: list[dict[str, str]] | None = None
    ) -> tuple[int, ...]:
        """Token ids of a text as it stands, or of messages after the model's chat template."""

    async def flush(self) -> None:
        """Wait until the server is idle, then empty its prefix cache and draft memory."""

    async def decode_moments(self) -> DecodeMoments | None:
        """The cumulative counters; None while nothing was decoded or where not kept."""
