"""What makes figures less trustworthy: of one pass, of all passes of a launch, of two launches.

Pure functions of what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from autospec import metrics
from autospec.measure import stats
from autospec.measurement import Request, RequestRecord, Run

__all__ = ["pass_warnings", "reusable_prefixes", "unequal_limits", "warnings_of"]

#: The steady-state window should be at least this share of the pass.
LEAST_WINDOW_SHARE: Final = 0.5
#: Of fewer answers, all may well be as long as they were allowed to be.
LEAST_ANSWERS: Final = 10
#: Above this share of its core, the load generator may have set the pace.
MOST_BUSY_SHARE: Final = 0.5
#: The server may count this share more tokens than the client received.
TOKEN_TOLERANCE: Final = 0.02
#: Throughput by the client's clock and by the server's may differ by this share.
CLOCK_TOLERANCE: Final = 0.02
#: What HTTP itself takes a request, in s, which is a larger share of a very short one.
CLOCK_FLOOR_S: Final = 0.005
#: Drafts for prompts seen before may be accepted by this factor better than the first time.
MEMORY_TOLERANCE: Final = 1.1
#: Resolved settings that decide how many requests are decoded at once.
LIMIT_KEYS: Final = ("max_running_requests", "max_prefill_tokens", "schedule_conservativeness")


def warnings_of(
    run: Run, requests: Sequence[Request], *, warmed: int | None = None
) -> tuple[str, ...]:
    """Warnings about a pass in which every request was answered, one line each.

    Args:
        run: the pass.
        requests: what it sent.
        warmed: the largest batch that the warm-up went through; the concurrency by default.
    """
    found = (
        *_window(run),
        *_warmth(run, warmed),
        *_client(run),
        *_clocks(run),
        *_cache(run.records, requests),
        *_retractions(run.records),
        *_endings(run.records),
        *_counts(run),
        *_foreign_prompts(run),
    )
    return tuple(found)


def pass_warnings(runs: Sequence[Run]) -> tuple[str, ...]:
    """Warnings about the passes of one launch, in the order made: outliers, drift and memory."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(f"{run.part}, {run.load}", []).append(run)
    found = (
        line
        for load, chosen in groups.items()
        for line in (*_outliers(load, chosen), *_drift(load, chosen))
    )
    return (*found, *_memory(runs))


def unequal_limits(
    a_resolved: Mapping[str, object], b_resolved: Mapping[str, object]
) -> tuple[str, ...]:
    """In which limits of admission two servers differ, one line each.

    Where they do, a difference in throughput may be the limit's and not the configuration's. A
    limit that one of them does not report is passed over.

    Args:
        a_resolved: settings that a server reported, as in ``Measurement.resolved``.
        b_resolved: another server's.
    """
    shared = [key for key in LIMIT_KEYS if key in a_resolved and key in b_resolved]
    return tuple(
        f"{key} is {a_resolved[key]} on one server and {b_resolved[key]} on the other: they do not"
        " admit the same load"
        for key in shared
        if a_resolved[key] != b_resolved[key]
    )


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


def _window(run: Run) -> Iterator[str]:
    length_s = run.window_s[1] - run.window_s[0]
    if length_s < LEAST_WINDOW_SHARE * run.duration_s:
        what = f"all {run.concurrency} slots were in use"
        if run.request_rate is not None:
            what = "the load was steady"
        yield (
            f"{what} for only {length_s:.1f} of {run.duration_s:.1f} s; more requests a pass would"
            " help"
        )


def _warmth(run: Run, warmed: int | None) -> Iterator[str]:
    if warmed is not None and run.concurrency > warmed:
        yield (
            f"{run.concurrency} requests were in flight, the warm-up went up to {warmed}: the first"
            " steps of larger batches may have been slow"
        )


def _client(run: Run) -> Iterator[str]:
    if run.client_busy_share > MOST_BUSY_SHARE:
        yield (
            f"the load generator used {run.client_busy_share:.0%} of its core and may have limited"
            " the server"
        )


def _clocks(run: Run) -> Iterator[str]:
    """Throughput of the same requests, each alone, by the client's clock and by the server's."""
    timed = [
        (record.end_s - record.start_s, record.server_latency_s)
        for record in run.records
        if record.error is None and record.server_latency_s
    ]
    if not timed or len(timed) < len(run.records):
        return
    client_s, server_s = (sum(latencies) for latencies in zip(*timed, strict=True))
    between_s = (client_s - server_s) / len(timed)
    # The tokens are the same, so throughputs are to each other as the latencies the other way.
    if abs(server_s / client_s - 1) > CLOCK_TOLERANCE and abs(between_s) > CLOCK_FLOOR_S:
        tokens = sum(record.completion_tokens for record in run.records)
        yield (
            f"{tokens / client_s:.1f} tokens/s a request by the client's clock,"
            f" {tokens / server_s:.1f} by the server's: {between_s:.3f} s a request lie between"
            " them (network, proxy, or a slow reader)"
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


def _endings(records: Sequence[RequestRecord]) -> Iterator[str]:
    """A server that goes on past the end of text gives every answer the length asked for."""
    if len(records) < LEAST_ANSWERS:
        return
    if all(record.finish_reason == "length" for record in records):
        yield (
            f"none of {len(records)} answers ended by itself, all at max_new_tokens: their lengths"
            " are not the model's own; ask for more tokens, or see that the server does not ignore"
            " the end-of-text token"
        )


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


def _foreign_prompts(run: Run) -> Iterator[str]:
    """Prompt tokens that the server computed and no request of this pass asked for."""
    if run.server is None or run.server.num_prefill_tokens is None:
        return
    # A request that was begun anew was computed more than once.
    if any(record.error is not None or record.num_retractions for record in run.records):
        return
    asked = sum(record.prompt_tokens - record.cached_tokens for record in run.records)
    if run.server.num_prefill_tokens > asked:
        yield (
            f"the server computed {run.server.num_prefill_tokens} prompt tokens in a pass of"
            f" {asked}: something else used it"
        )


def _outliers(load: str, runs: Sequence[Run]) -> Iterator[str]:
    figures = [run.output_throughput for run in runs]
    for place in stats.outliers(figures):
        others = stats.summarize([f for i, f in enumerate(figures) if i != place])
        yield (
            f"{load}: repeat {runs[place].repeat} made {figures[place]:.1f} tokens/s, the others"
            f" {others.low:.1f} to {others.high:.1f}: something disturbed it"
        )


def _drift(load: str, runs: Sequence[Run]) -> Iterator[str]:
    trend = stats.drift([run.output_throughput for run in runs])
    if trend is not None and trend.significant:
        yield f"{load}: throughput drifted by {trend.per_pass:+.1%} a pass: the machine changed"


def _memory(runs: Sequence[Run]) -> Iterator[str]:
    """Drafts for a prompt that came again, against those when it came first."""
    records = [record for run in runs for record in run.records]
    first: dict[int, RequestRecord] = {}
    again = [r for r in records if first.setdefault(r.prompt, r) is not r]
    before = metrics.accept_length(first[prompt] for prompt in {r.prompt for r in again})
    after = metrics.accept_length(again)
    if before is not None and after is not None and after > MEMORY_TOLERANCE * before:
        yield (
            f"accept length rose from {before:.2f} to {after:.2f} on prompts that came again: the"
            " server remembers their answers"
        )
