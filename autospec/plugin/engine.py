"""Starts the steering of one worker: what the plugin reads from inside SGLang 0.5.23.

Loaded in scheduler processes only.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

from sglang.srt.model_executor.cuda_graph_config import Backend, Phase, check_cuda_graph_backend
from sglang.srt.runtime_context import (
    get_device,
    get_exec,
    get_lora,
    get_observability,
    get_parallel,
    get_schedule,
    get_spec,
)

from autospec.control.status import status_path
from autospec.plugin.asked import Asked, asked_for
from autospec.plugin.metrics import PrometheusMetrics
from autospec.plugin.plan import EngineFacts, inactive, make_plan
from autospec.plugin.recorder import Recorder
from autospec.plugin.reporter import Reporter
from autospec.plugin.steering import Steering

__all__ = ["captures_graphs", "start"]

_log = logging.getLogger(__name__)


def start(server_args: Any, *, obstacle: str | None = None) -> Steering:
    """The steering of this process's worker; never raises.

    Args:
        server_args: what the worker was made with.
        obstacle: why a worker of this kind cannot be switched.
    """
    asked = asked_for(os.environ) or Asked()
    engine = _facts(obstacle)
    recorder = None
    try:
        plan = make_plan(asked, engine)
        if asked.trace is not None and _speaks():
            recorder = Recorder(
                asked.trace, algorithm=engine.algorithm, depth=engine.depth, topk=engine.topk
            )
    except Exception as error:  # noqa: BLE001  # the server must start whatever is wrong in here
        plan = inactive(engine, error)
    steering = Steering(plan, engine.depth, recorder=recorder, overlaps=engine.overlaps)
    if _speaks():
        _log.warning("autospec: %s", steering.reason)
        _report(steering, asked, engine, recorder, int(server_args.port))
    return steering


def captures_graphs() -> bool:
    """Whether decode steps run as graphs captured for one width."""
    return get_device().device != "cpu" and not check_cuda_graph_backend(
        Phase.DECODE, Backend.DISABLED
    )


def _facts(obstacle: str | None) -> EngineFacts:
    spec = get_spec()
    algorithm = str(spec.speculative_algorithm).upper()
    tokens = spec.speculative_num_draft_tokens or 1
    ngram = algorithm == "NGRAM"
    return EngineFacts(
        algorithm=algorithm,
        depth=tokens - 1 if ngram else spec.speculative_num_steps or max(1, tokens - 1),
        topk=1 if ngram else spec.speculative_eagle_topk or 1,
        captures_graphs=captures_graphs(),
        overlaps=not get_schedule().disable_overlap_schedule,
        ranks=int(get_parallel().tp_size),
        obstacle=obstacle or _obstacle(),
    )


def _obstacle() -> str | None:
    """Why this server must not be switched: what SGLang's own adaptive speculation refuses too."""
    parallel = get_parallel()
    reasons = {
        "pipeline parallelism": parallel.pp_size > 1,
        "attention data parallelism": parallel.attn_dp_enabled,
        "two-batch overlap": get_exec().overlap.enable_two_batch_overlap,
        "LoRA": bool(get_lora().enable_lora),
    }
    found = [name for name, there in reasons.items() if there]
    return f"it cannot switch a server with {found[0]}" if found else None


def _speaks() -> bool:
    """Whether this process speaks for its server: all ranks decide the same."""
    parallel = get_parallel()
    return parallel.tp_rank == 0 and _dp_rank() == 0


def _dp_rank() -> int:
    with contextlib.suppress(AttributeError, RuntimeError, ValueError):
        return int(get_parallel().dp_rank or 0)
    return 0


def _report(
    steering: Steering, asked: Asked, engine: EngineFacts, recorder: Recorder | None, port: int
) -> None:
    metrics = None
    try:
        if get_observability().enable_metrics:
            metrics = PrometheusMetrics(_dp_rank())
    except Exception:  # noqa: BLE001  # figures are a convenience
        _log.exception("autospec: no metrics")
    reporter = Reporter(
        steering, asked, engine, path=status_path(port), recorder=recorder, metrics=metrics
    )
    reporter.start()
