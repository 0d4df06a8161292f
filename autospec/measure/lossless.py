"""Greedy answers of a configuration against plain decoding's, and plain against itself.

One server runs at a time, so the check is made over three launches::

    plain = await collect(server, requests, concurrency)                   # plain decoding
    candidate = await collect(server, requests, concurrency)               # the configuration
    result = await check(server, requests, plain, candidate, concurrency)  # plain again

``check`` collects the control, weighs what differs and judges. Answers are the user's data: they
stay in memory and are never stored, so a confirmation that is resumed collects them anew.
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, Protocol

from autospec.errors import EngineError, MeasureError
from autospec.fidelity import Agreement, Fidelity, Lossless
from autospec.measurement import Request

__all__ = [
    "NEAR_TIE",
    "Answers",
    "Divergence",
    "GreedyServer",
    "chance",
    "check",
    "check_each",
    "collect",
    "diverge",
    "judge",
    "weigh",
]

#: Token ids of greedy answers, by index of the prompt.
Answers = Mapping[int, tuple[int, ...]]

#: Two tokens whose log-probabilities are at most this far apart, in nats, are a near-tie. Logits in
#: bfloat16 are multiples of 1/8 from 16 to 32 and of 1/4 from 32 to 64; two such steps fit, and the
#: bound lies on none. SmolLM2-135M in bfloat16, 48 prompts of 64 tokens, plain decoding at
#: concurrency 16 against 1, 2, 4, 8, 12 and 16: 98 divergences, 97 of at most 0.25 and one of 0.5.
NEAR_TIE: Final = 0.6
#: A candidate ``differs`` when plain decoding would do so with at most this probability.
SIGNIFICANCE: Final = 0.05
#: What may be known of a model before its control is looked at, as (weight, a, b): its rate of
#: wide divergences is drawn from a beta distribution. Of most models rounding hardly ever makes one
#: (half a one in 40 prompts); of a tenth, nothing is known (Jeffreys' prior): rounding that sends
#: a token to another expert, say, is not small any more.
PRIOR: Final = ((0.9, 0.5, 40.0), (0.1, 0.5, 0.5))
#: Most likely next tokens that are asked for; one that is not among them is no near-tie.
TOP: Final = 20


class GreedyServer(Protocol):
    """What the check needs of a running server. ``autospec.engine`` has the real one."""

    async def answer(self, request: Request) -> tuple[int, ...]:
        """Token ids of the greedy answer, end-of-text token included."""

    async def next_logprobs(
        self, input_ids: Sequence[int], *, top: int
    ) -> tuple[tuple[int, float], ...]:
        """The ``top`` most likely next tokens, the likeliest first, with log-probabilities."""

    async def flush(self) -> None:
        """Wait until the server is idle, then empty its prefix cache and draft memory."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two answers to one prompt first differ.

    Attributes:
        prompt: index of the prompt.
        position: index in the answer of the first token that differs.
        plain: plain decoding's token there; None where its answer had ended.
        other: the other's.
        margin: how far the less likely of the two is below the likeliest next token, in nats,
            as plain decoding sees it; infinite where that is not known or a token is missing.
    """

    prompt: int
    position: int
    plain: int | None
    other: int | None
    margin: float = math.inf


async def check(
    server: GreedyServer,
    requests: Sequence[Request],
    plain: Answers,
    candidate: Answers,
    concurrency: int,
) -> Lossless:
    """Collect the control from a second launch of plain decoding, weigh what differs, and judge.

    The control is collected at another concurrency: its batches have other shapes than those of
    the first launch, as a speculating server's have.

    Args:
        server: plain decoding, launched again.
        requests: what both were asked.
        plain: what the first launch of plain decoding answered.
        candidate: what the configuration answered.
        concurrency: at which both were collected.

    Raises:
        MeasureError: a request was lost, or the answers are not to these requests.
    """
    return (await check_each(server, requests, plain, [candidate], concurrency))[0]


async def check_each(
    server: GreedyServer,
    requests: Sequence[Request],
    plain: Answers,
    candidates: Sequence[Answers],
    concurrency: int,
) -> tuple[Lossless, ...]:
    """The same for the answers of several configurations, with one control for all."""
    again = await collect(server, requests, concurrency // 2 if concurrency > 1 else 2)
    control, *ours = [
        await weigh(server, requests, plain, diverge(plain, other))
        for other in (again, *candidates)
    ]
    return tuple(judge(len(requests), found, control) for found in ours)


async def collect(
    server: GreedyServer, requests: Sequence[Request], concurrency: int
) -> dict[int, tuple[int, ...]]:
    """Ask for the greedy answers, after a flush; the requests' own sampling is not used.

    Args:
        server: any running server.
        requests: each prompt once.
        concurrency: requests in flight.

    Returns:
        Token ids of each answer, by index of the prompt.

    Raises:
        MeasureError: a request was lost; the others are then given up.
    """
    if concurrency < 1:
        raise MeasureError(f"concurrency is {concurrency}, must be at least 1")
    if len({request.prompt for request in requests}) < len(requests):
        raise MeasureError("a prompt is asked twice, must be once: a drafter may remember it")
    waiting = iter(requests)
    answers: dict[int, tuple[int, ...]] = {}

    async def keep_one_in_flight() -> None:
        for request in waiting:
            answers[request.prompt] = await server.answer(request)

    try:
        await server.flush()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(requests))):
                group.create_task(keep_one_in_flight())
    except* EngineError as failures:
        lost = len(requests) - len(answers)
        raise _lost(f"{lost} of {len(requests)} greedy answers", failures) from failures
    return answers


def diverge(plain: Answers, other: Answers) -> tuple[Divergence, ...]:
    """First differences, ordered by prompt; an answer that ends early differs at its end.

    Raises:
        MeasureError: they do not answer the same prompts.
    """
    if plain.keys() != other.keys():
        raise MeasureError(
            f"{len(plain.keys() ^ other.keys())} prompts have one answer, must have two to compare"
        )
    found: list[Divergence] = []
    for prompt in sorted(plain):
        pairs = enumerate(zip_longest(plain[prompt], other[prompt]))
        first = next((at for at in pairs if at[1][0] != at[1][1]), None)
        if first is not None:
            found.append(Divergence(prompt, first[0], *first[1]))
    return tuple(found)


async def weigh(
    server: GreedyServer,
    requests: Sequence[Request],
    plain: Answers,
    divergences: Sequence[Divergence],
) -> tuple[Divergence, ...]:
    """The same divergences with their margins, as plain decoding sees them.

    Args:
        server: plain decoding; the launch does not matter.
        requests: what was asked.
        plain: the answers that the divergences are from.
        divergences: of anything against those answers.

    Raises:
        MeasureError: a request was lost.
    """
    prompts = {request.prompt: request.input_ids for request in requests}
    weighed: list[Divergence] = []
    for found in divergences:
        common = prompts[found.prompt] + plain[found.prompt][: found.position]
        # One at a time: a batch would move the very figures that are looked for.
        try:
            likeliest = await server.next_logprobs(common, top=TOP)
        except EngineError as error:
            raise _lost("the log-probabilities at a divergence", error) from error
        weighed.append(replace(found, margin=_margin(found, likeliest)))
    return tuple(weighed)


def judge(prompts: int, candidate: Sequence[Divergence], control: Sequence[Divergence]) -> Lossless:
    """What weighed divergences say.

    Near-ties are no evidence: a server whose batches have another shape flips more of them. What
    counts are wide divergences, against what chance would give plain decoding (``chance``).

    Args:
        prompts: number of prompts asked.
        candidate: the configuration's divergences from plain decoding.
        control: those of plain decoding from itself.

    Raises:
        SchemaError: there are no prompts, or more divergences than prompts.
    """
    ours, theirs = _agreement(prompts, candidate), _agreement(prompts, control)
    decision: Fidelity = "like plain"
    if not candidate:
        decision = "identical"
    elif chance(ours.wide, theirs.wide, prompts) <= SIGNIFICANCE:
        decision = "differs"
    return Lossless(decision, candidate=ours, control=theirs, near_tie_nats=NEAR_TIE)


def chance(wide: int, control_wide: int, prompts: int) -> float:
    """Probability that plain decoding shows at least ``wide`` wide divergences from itself.

    The posterior predictive tail of a binomial rate whose prior is a mixture of beta distributions
    (Gelman et al., Bayesian Data Analysis, 3rd edition, 2.4): ``PRIOR``, then the control's
    ``control_wide`` of ``prompts``, then as many prompts again. Fisher's exact test of the two
    counts would need 5 of 16 against none; with what is known of rounding, 2 of 16 are enough,
    3 against 1 and 9 against 4.
    """
    weights = [p * _beta_binomial(control_wide, prompts, a, b) for p, a, b in PRIOR]
    tails = [
        math.fsum(
            _beta_binomial(k, prompts, a + control_wide, b + prompts - control_wide)
            for k in range(wide, prompts + 1)
        )
        for _, a, b in PRIOR
    ]
    joint = math.fsum(weight * tail for weight, tail in zip(weights, tails, strict=True))
    return joint / math.fsum(weights)


def _beta_binomial(k: int, n: int, a: float, b: float) -> float:
    logarithm = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(logarithm + _log_beta(a + k, b + n - k) - _log_beta(a, b))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _margin(found: Divergence, likeliest: Sequence[tuple[int, float]]) -> float:
    logprobs = dict(likeliest)
    if found.plain not in logprobs or found.other not in logprobs:
        return math.inf
    return max(logprobs.values()) - min(logprobs[found.plain], logprobs[found.other])


def _agreement(prompts: int, divergences: Sequence[Divergence]) -> Agreement:
    near_ties = sum(found.margin <= NEAR_TIE for found in divergences)
    positions = sorted(found.position for found in divergences)
    known = [found.margin for found in divergences if math.isfinite(found.margin)]
    return Agreement(
        identical=prompts - len(divergences),
        near_ties=near_ties,
        wide=len(divergences) - near_ties,
        positions=_quartiles(positions) if positions else None,
        widest=max(known, default=None),
    )


def _quartiles(values: Sequence[int]) -> tuple[float, float, float]:
    # A single value is its own quartiles, which the standard library refuses to say.
    low, middle, high = statistics.quantiles(
        [*values] * 2 if len(values) == 1 else values, n=4, method="inclusive"
    )
    return low, middle, high


def _lost(what: str, cause: EngineError | BaseExceptionGroup[EngineError]) -> MeasureError:
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return MeasureError(f"{what} were lost, the first with: {' '.join(str(cause).split())}")
