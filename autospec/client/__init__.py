"""HTTP clients that keep speculation's gain: they read acceptance, route requests and fail over."""

from __future__ import annotations

from autospec.client.clients import AsyncClient, Client
from autospec.client.core import Waits
from autospec.client.counters import Counters
from autospec.client.events import ResponseReport, RoutingDecision
from autospec.client.native import Generation

__all__ = [
    "AsyncClient",
    "Client",
    "Counters",
    "Generation",
    "ResponseReport",
    "RoutingDecision",
    "Waits",
]
