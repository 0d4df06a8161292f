"""The plugin's figures among the server's own Prometheus metrics."""

from __future__ import annotations

from typing import Any, Final

from autospec.control.status import PluginStatus

__all__ = ["PrometheusMetrics"]

_LABEL: Final = "dp_rank"
_COUNTERS: Final = {
    "plain_steps": "Decode steps without speculation.",
    "speculative_steps": "Decode steps with speculation.",
    "probe_steps": "Decode steps run to learn whether speculation pays.",
    "shadow_drafts": "Drafts that were not verified but held against plain decoding.",
    "switches": "Changes of the settled drafting depth.",
    "fallbacks": "Changes to plain decoding.",
    "recoveries": "Changes from plain decoding to speculation.",
    "errors": "Faults of the plugin.",
}


class PrometheusMetrics:
    """Gauges and counters that SGLang's ``/metrics`` shows beside its own.

    SGLang collects across processes, which ``prometheus_client`` decides on when it is imported; so
    it is imported here, inside a server that has told it to.
    """

    def __init__(self, dp_rank: int) -> None:
        from prometheus_client import Counter, Gauge  # noqa: PLC0415  # see the class

        self._label = str(dp_rank)
        self._seen = dict.fromkeys(_COUNTERS, 0)
        self._gauges: dict[str, Any] = {
            name: Gauge(f"autospec:{name}", text, [_LABEL], multiprocess_mode="mostrecent")
            for name, text in (
                ("active", "1 while a policy decides, else 0."),
                ("depth", "Drafting depth of the latest decode step; 0 is plain decoding."),
            )
        }
        self._counters: dict[str, Any] = {
            name: Counter(f"autospec:{name}", text, [_LABEL]) for name, text in _COUNTERS.items()
        }

    def show(self, status: PluginStatus) -> None:
        """Take the latest status."""
        self._gauges["active"].labels(self._label).set(int(status.active))
        self._gauges["depth"].labels(self._label).set(status.depth or 0)
        for name, counter in self._counters.items():
            count = status.counters.get(name, 0)
            counter.labels(self._label).inc(max(0, count - self._seen[name]))
            self._seen[name] = count
