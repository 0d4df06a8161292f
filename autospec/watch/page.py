"""What autospec's plugin shows on a server's Prometheus page, for servers on other machines."""

from __future__ import annotations

import re
from typing import Final

from autospec.control.status import PluginStatus

__all__ = ["read_plugin_page"]

_SAMPLE: Final = re.compile(
    r'^autospec:(\w+?)(?:_total)?\{[^}]*dp_rank="0"[^}]*\} (\S+)$', re.MULTILINE
)
_GAUGES: Final = frozenset({"active", "depth"})


def read_plugin_page(page: str) -> PluginStatus | None:
    """The plugin's state and counters, of the first data-parallel rank; None without a plugin.

    Decisions with their reasons are in its status file only.
    """
    found = {name: int(float(value)) for name, value in _SAMPLE.findall(page)}
    if "active" not in found:
        return None
    counters = {name: value for name, value in found.items() if name not in _GAUGES}
    return PluginStatus(
        active=bool(found["active"]),
        reason="it says so on /metrics",
        pid=0,
        updated_s=0.0,
        depth=found.get("depth"),
        steps=counters.get("plain_steps", 0) + counters.get("speculative_steps", 0),
        counters=counters,
    )
