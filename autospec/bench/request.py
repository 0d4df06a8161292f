"""What the user asked for; the command lines' defaults are read from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autospec.metrics import Slo

__all__ = ["LaunchSettings", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """What the user wants sent.

    Attributes:
        prompts: path of the prompt file, or ``-``.
        concurrencies: loads, as requests in flight.
        request_rates: further loads, as requests/s that arrive at random.
        requests_per_pass: None for the whole part.
        max_new_tokens: longest answer where the prompt file sets none.
        temperature: of sampling.
        seed: of the split of the prompts.
        slo: limits that requests are held to.
        stall_timeout_s: longest time without a byte from the server; a request that waits longer is
            lost, and its pass with it.
    """

    prompts: str
    concurrencies: tuple[int, ...] = (1, 8, 32)
    request_rates: tuple[float, ...] = ()
    requests_per_pass: int | None = None
    max_new_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0
    slo: Slo | None = None
    stall_timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class LaunchSettings:
    """How servers are launched.

    Attributes:
        model: target of a configuration, or where a profile's model lies here.
        device: ``cuda``, ``cpu``, ...; None to look.
        dtype: of weights and computing, as SGLang names it.
        tp_size: GPUs the target is spread over.
        max_running_requests: admission limit; None for the larger of 48 and the highest load.
        mem_fraction_static: share of memory; None for a default by device.
        context_length: longest prompt and answer; None for the model's own.
        max_total_tokens: KV cache size in tokens; None to derive it from the memory.
        attention_backend: None for the configuration's own best.
        page_size: tokens a page of the KV cache; None for the configuration's own best.
        seed: of the server.
        extra: SGLang flags passed through.
        launch_timeout_s: how long a server may take to be ready.
        logs: folder where each launch leaves its log; None keeps none.
        force: use a profile though model, machine or engine differ.
    """

    model: str | None = None
    device: str | None = None
    dtype: str = "auto"
    tp_size: int = 1
    max_running_requests: int | None = None
    mem_fraction_static: float | None = None
    context_length: int | None = None
    max_total_tokens: int | None = None
    attention_backend: str | None = None
    page_size: int | None = None
    seed: int = 0
    extra: tuple[str, ...] = ()
    launch_timeout_s: float = 600.0
    logs: Path | None = None
    force: bool = False
