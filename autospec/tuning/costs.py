"""What the parts of a study are expected to take, in seconds. Pure."""

from __future__ import annotations

from typing import Final

from autospec.measure.harness import PassPlan
from autospec.measure.split import Parts
from autospec.tune.budget import Cost
from autospec.tuning.request import TuneRequest

__all__ = ["assumed_cost", "round_launches", "round_s"]

#: A round of the confirmation is plain decoding, each finalist, plain decoding again.
_PLAIN_IN_ROUND: Final = 2
#: What the first plan assumes until plain decoding was measured: seconds a launch, and tokens/s of
#: a single request.
_ASSUMED: Final = {"cpu": (50.0, 20.0)}
_ASSUMED_ELSEWHERE: Final = (90.0, 100.0)


def round_launches(finalists: int) -> int:
    """Servers started for one round of the confirmation."""
    return finalists + _PLAIN_IN_ROUND


def round_s(
    request: TuneRequest,
    parts: Parts,
    *,
    launch_s: float,
    passes_s: float,
    request_s: float,
    finalists: int,
) -> float:
    """Seconds of one round of the confirmation.

    Args:
        request: what is asked for.
        parts: the split workload.
        launch_s: a launch.
        passes_s: all passes of one trial of the search; a finalist makes twice as many, and so
            does plain decoding.
        request_s: one request's share of a pass at the highest concurrency.
        finalists: how many.
    """
    answers = min(request.lossless_prompts, len(parts.confirm.prompts))
    launches = round_launches(finalists) * (launch_s + answers * request_s)
    return launches + 2 * (finalists + 1) * passes_s


def assumed_cost(request: TuneRequest, parts: Parts, device: str, finalists: int) -> Cost:
    """What the first plan goes by, before plain decoding was measured here."""
    launch_s, rate = _ASSUMED.get(device, _ASSUMED_ELSEWHERE)
    plan = PassPlan(
        request.concurrencies, request.repeats, requests_per_pass=request.requests_per_pass
    )
    prompts = parts.tune.prompts
    new_tokens = sum(prompt.max_new_tokens for prompt in prompts) / len(prompts)
    most = max(request.concurrencies)
    # Throughput grows less than linearly with the load; its square root is on the safe side.
    passes_s = request.repeats * sum(
        plan.requests(level, len(prompts)) * new_tokens / (rate * level**0.5)
        for level in request.concurrencies
    )
    return Cost(
        launch_s=launch_s,
        passes_s=passes_s,
        confirm_s=round_s(
            request,
            parts,
            launch_s=launch_s,
            passes_s=passes_s,
            request_s=new_tokens / (rate * most**0.5),
            finalists=finalists,
        ),
        confirm_launches=round_launches(finalists),
        confirm_rounds=request.confirm_rounds,
    )
