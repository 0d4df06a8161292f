"""What makes the figure of one pass less trustworthy. Pure functions of the pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from autospec.measurement import Request, RequestRecord, Run

__all__ = ["one_line", "reusable_prefixes", "warnings_of"]

#: The steady-state window should be at least this share of the pass.
LEAST_WINDOW_SHARE: Final = 0.5
#: Above this share of its core, the load generator may have set the pace.
MOST_BUSY_SHARE: Final = 0.5
#: The server may count this share more tokens than the client received.
TOKEN_TOLERANCE: Final = 0.02


def warnings_of(run: Run, requests: Sequence[Request]) -> tuple[str, ...]:
    """Warnings about a pass, one line each.

    Args:
        run: the pass.
        requests: what it sent.
    """
    found = (
        *_failures(run.records),
        *_window(run),
        *_client(run),
        *_cache(run.records, requests),
        *_retractions(run.records),
        *_counts(run),
    )
    return tuple(found)


def one_line(text: str) -> str:
    """A text from elsewhere, fit for a one-line message."""
    return " ".join(text.split())


def reusable_prefixes(requests: Sequence[Request]) -> dict[int, int]:
    """For each prompt, by index: the most first tokens that the others can leave in the cache.

    That is the longest beginning in common with another prompt; all of it, where it goes on from
    another prompt, for that one's answer is in the cache too.
    """
    # In sorted order, whoever has the longest common beginning with a sequence is next to it.
    ordered = sorted(requests, key=lambda request: request.input_ids)
    reusable = dict.fromkeys((request.prompt for request in requests), 0)
    for left, right in pairwise(ordered):
        common = _common_prefix(left.input_ids, right.input_ids)
        reusable[left.prompt] = max(reusable[left.prompt], common)
        reusable[right.prompt] = max(reusable[right.prompt], common)
    beginnings: list[tuple[int, ...]] = []
    for request in ordered:
        while beginnings and request.input_ids[: len(beginnings[-1])] != beginnings[-1]:
            beginnings.pop()
        if beginnings:
            reusable[request.prompt] = len(request.input_ids)
        beginnings.append(request.input_ids)
    return reusable


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(left), len(right)))


def _failures(records: Sequence[RequestRecord]) -> Iterator[str]:
    failed = [record.error for record in records if record.error is not None]
    if failed:
        yield (
            f"{len(failed)} of {len(records)} requests failed, the first with:"
            f" {one_line(failed[0])}"
        )


def _window(run: Run) -> Iterator[str]:
    length_s = run.window_s[1] - run.window_s[0]
    if length_s < LEAST_WINDOW_SHARE * run.duration_s:
        yield (
            f"all {run.concurrency} slots were in use for only {length_s:.1f} of"
            f" {run.duration_s:.1f} s; more requests a pass would help"
        )


def _client(run: Run) -> Iterator[str]:
    if run.client_busy_share > MOST_BUSY_SHARE:
        yield (
            f"the load generator used {run.client_busy_share:.0%} of its core and may have limited"
            " the server"
        )


def _cache(records: Sequence[RequestRecord], requests: Sequence[Request]) -> Iterator[str]:
    """Prompt tokens from the prefix cache that no other prompt of this pass can have put there."""
    reusable = reusable_prefixes(requests)
    # A request that was begun anew finds its own first attempt.
    once = [record for record in records if not record.num_retractions]
    leaked = [record for record in once if record.cached_tokens > reusable[record.prompt]]
    if leaked:
        yield (
            f"{len(leaked)} of {len(records)} requests found more of their prompt in the prefix"
            " cache than this pass has put"
        )


def _retractions(records: Sequence[RequestRecord]) -> Iterator[str]:
    retracted = sum(record.num_retractions > 0 for record in records)
    if retracted:
        yield f"the server was short of KV cache and began {retracted} of {len(records)} anew"


def _counts(run: Run) -> Iterator[str]:
    """Tokens as the client saw them against tokens as the server counted them."""
    answered = [record for record in run.records if record.error is None]
    received = sum(record.chunk_tokens[-1] for record in answered if record.chunk_tokens)
    counted = sum(record.completion_tokens for record in answered)
    if received != counted:
        yield f"{received} tokens were streamed where the server counted {counted}"
    if run.server is None or len(answered) < len(run.records):
        return
    # The server leaves out decode steps next to a prefill, so only more than was received tells
    # something; a request's last step may decode past its end, by as many drafts as it ever had.
    beyond = sum(1 + len(record.correct_histogram) for record in answered)
    if run.server.num_tokens > counted * (1 + TOKEN_TOLERANCE) + beyond:
        yield (
            f"the server decoded {run.server.num_tokens} tokens in a pass of {counted}: something"
            " else used it"
        )
