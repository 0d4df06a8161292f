"""What makes a pass less trustworthy is said, and nothing else is."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.measure.checks import (
    pass_warnings,
    reusable_prefixes,
    unequal_limits,
    warnings_of,
)
from autospec.measurement import Request, RequestRecord, Run, ServerDelta

REQUESTS = [
    Request(0, (1, 2, 3, 4), 5),
    Request(1, (1, 2, 7, 8), 5),
    Request(2, (6, 2, 3, 4), 5),
]
RECORDS = tuple(
    RequestRecord(
        r.prompt,
        0.0,
        5.0,
        chunk_s=(1.0, 5.0),
        chunk_tokens=(1, 5),
        prompt_tokens=4,
        completion_tokens=5,
        finish_reason="stop",
        server_latency_s=4.95,
    )
    for r in REQUESTS
)
COUNTS = ServerDelta(9, 1.5, 10.0, 12, num_prefill_tokens=12)
RUN = Run("tune", 2, 0, 3.0, (0.0, 5.0), 6.0, RECORDS, COUNTS, 0.1)


def changed(**changes: object) -> Run:
    """The clean pass with the first record changed."""
    return replace(RUN, records=(replace(RECORDS[0], **changes), *RECORDS[1:]))  # type: ignore[arg-type]  # each test names real fields


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        replace(RUN, server=None),
        replace(RUN, window_s=(1.0, 4.0), client_busy_share=0.5),
        replace(changed(cached_tokens=2), server=replace(COUNTS, num_prefill_tokens=10)),
        replace(RUN, server=ServerDelta(9, 1.5, 10.0, 18)),
        changed(finish_reason="length", server_latency_s=None),
        replace(RUN, records=tuple(replace(r, finish_reason="length") for r in RECORDS * 3)),
        replace(RUN, request_rate=2.0),
    ],
    ids=[
        "clean",
        "no-counters",
        "at-the-limits",
        "shared-prefix",
        "one-step-beyond-each-end",
        "one-at-its-limit",
        "few-at-their-limits",
        "arrivals-at-a-rate",
    ],
)
def test_a_sound_pass_has_no_warnings(run: Run) -> None:
    """Neither has one whose prompts begin alike, or whose requests end within a verify step."""
    assert warnings_of(run, REQUESTS) == ()


@pytest.mark.parametrize(
    ("run", "warning"),
    [
        (
            replace(RUN, window_s=(1.0, 3.9)),
            "all 2 slots were in use for only 2.9 of 6.0 s; more requests a pass would help",
        ),
        (
            replace(RUN, client_busy_share=0.51),
            "the load generator used 51% of its core and may have limited the server",
        ),
        (
            replace(changed(cached_tokens=3), server=None),
            "1 of 3 requests found more of their prompt in the prefix cache than this pass has put",
        ),
        (changed(num_retractions=2), "the server was short of KV cache and began 1 of 3 anew"),
        (
            replace(RUN, window_s=(1.0, 3.9), request_rate=4.0),
            "the load was steady for only 2.9 of 6.0 s; more requests a pass would help",
        ),
        (
            replace(RUN, records=tuple(replace(r, server_latency_s=4.8) for r in RECORDS)),
            (
                "1.0 tokens/s a request by the client's clock, 1.0 by the server's: 0.200 s a"
                " request lie between them (network, proxy, or a slow reader)"
            ),
        ),
        (
            replace(RUN, records=tuple(replace(r, finish_reason="length") for r in RECORDS * 4)),
            (
                "none of 12 answers ended by itself, all at max_new_tokens: their lengths are not"
                " the model's own; ask for more tokens, or see that the server does not ignore the"
                " end-of-text token"
            ),
        ),
        (
            replace(RUN, server=replace(COUNTS, num_prefill_tokens=13)),
            "the server computed 13 prompt tokens in a pass of 12: something else used it",
        ),
        (changed(completion_tokens=6), "15 tokens were streamed where the server counted 16"),
        (
            replace(RUN, server=ServerDelta(9, 1.5, 10.0, 19)),
            "the server decoded 19 tokens in a pass of 15: something else used it",
        ),
    ],
)
def test_what_is_wrong_with_a_pass_is_said_in_one_line(run: Run, warning: str) -> None:
    """One warning for one fault."""
    assert warnings_of(run, REQUESTS) == (warning,)


def test_several_faults_give_several_warnings() -> None:
    """None hides another."""
    run = replace(changed(cached_tokens=4), client_busy_share=1.0, window_s=(0.0, 1.0), server=None)
    assert len(warnings_of(run, REQUESTS)) == 3


def test_a_batch_that_no_warm_up_went_through_is_told() -> None:
    """Its first steps may have compiled something."""
    run = replace(RUN, concurrency=9, request_rate=2.0)
    assert warnings_of(run, REQUESTS, warmed=9) == ()
    (warning,) = warnings_of(run, REQUESTS, warmed=8)
    assert warning.startswith("9 requests were in flight, the warm-up went up to 8")


@pytest.mark.parametrize("server_s", [4.91, 5.09])
def test_clocks_may_differ_by_two_percent(server_s: float) -> None:
    """In either direction."""
    run = replace(RUN, records=tuple(replace(r, server_latency_s=server_s) for r in RECORDS))
    assert warnings_of(run, REQUESTS) == ()
    further_s = server_s + 0.02 * (1 if server_s > 5 else -1)
    run = replace(RUN, records=tuple(replace(r, server_latency_s=further_s) for r in RECORDS))
    assert len(warnings_of(run, REQUESTS)) == 1


def test_a_few_milliseconds_of_http_are_no_difference_of_clocks() -> None:
    """They are a large share of a very short request."""
    brief = [replace(r, end_s=0.1, chunk_s=(0.05, 0.1), server_latency_s=0.0951) for r in RECORDS]
    assert warnings_of(replace(RUN, records=tuple(brief)), REQUESTS) == ()
    slow = [replace(r, server_latency_s=0.0949) for r in brief]
    assert len(warnings_of(replace(RUN, records=tuple(slow)), REQUESTS)) == 1


def test_a_request_begun_anew_may_find_its_own_first_attempt() -> None:
    """That is a retraction, not a leak."""
    (warning,) = warnings_of(changed(num_retractions=1, cached_tokens=4), REQUESTS)
    assert "began 1 of 3 anew" in warning


@given(prompts=st.lists(st.lists(st.integers(0, 2), max_size=6).map(tuple), min_size=1, max_size=8))
def test_reusable_prefixes_are_the_longest_that_any_other_prompt_leaves(
    prompts: list[tuple[int, ...]],
) -> None:
    """Compared with all pairs, one by one."""
    found = reusable_prefixes([Request(n, ids, 1) for n, ids in enumerate(prompts)])
    for n, ids in enumerate(prompts):
        others = prompts[:n] + prompts[n + 1 :]
        longest = max(k for k in range(len(ids) + 1) if k == 0 or _any_begins(others, ids[:k]))
        goes_on = any(ids[: len(other)] == other for other in others)
        assert found[n] == (len(ids) if goes_on else longest)


def _any_begins(prompts: list[tuple[int, ...]], beginning: tuple[int, ...]) -> bool:
    return any(prompt[: len(beginning)] == beginning for prompt in prompts)


def repeats(*figures: float, concurrency: int = 2) -> list[Run]:
    """Passes with these throughputs."""
    return [
        Run("tune", concurrency, n, figure, (0.0, 5.0), 6.0, ()) for n, figure in enumerate(figures)
    ]


STEADY = (100.0, 101.0, 99.5, 100.5, 99.0, 100.2, 99.8, 100.7)


def test_steady_passes_have_no_warnings() -> None:
    """Levels are not compared with each other."""
    assert pass_warnings([*repeats(*STEADY), *repeats(*STEADY[:3], concurrency=9)]) == ()


def test_a_pass_far_from_the_others_is_reported() -> None:
    """With its level, its repeat and the others' range."""
    figures = (*STEADY[:5], 50.0, *STEADY[5:])
    (warning,) = pass_warnings([*repeats(*figures), *repeats(*STEADY, concurrency=9)])
    assert warning == (
        "tune, concurrency 2: repeat 5 made 50.0 tokens/s, the others 99.0 to 101.0: something"
        " disturbed it"
    )


def test_a_trend_over_the_passes_is_reported() -> None:
    """With its level and its slope."""
    figures = [100.0 - 2 * n + 0.1 * (n % 3) for n in range(12)]
    (warning,) = pass_warnings(repeats(*figures))
    assert re.fullmatch(
        r"tune, concurrency 2: throughput drifted by -2\.\d% a pass: the machine changed", warning
    )


@pytest.mark.parametrize(("correct", "told"), [(10, False), (11, False), (13, True)])
def test_drafts_that_are_better_the_second_time_are_reported(correct: int, told: bool) -> None:
    """A prompt that came again should be drafted for as when it came first."""
    counted = [
        replace(RECORDS[0], verify_ct=10, num_correct_drafts=number) for number in (10, correct)
    ]
    first = replace(RUN, records=(counted[0],))
    again = replace(RUN, repeat=1, records=(counted[1], *RECORDS[1:]))
    warnings = pass_warnings([first, again])
    assert len(warnings) == told
    if told:
        assert warnings[0].startswith("accept length rose from 2.00 to 2.30 on prompts that came")


def test_limits_that_differ_between_two_servers_are_told() -> None:
    """Each with both values; what one server does not report is not compared."""
    plain = {"max_running_requests": 4096, "max_prefill_tokens": 8192, "max_total_num_tokens": 9}
    drafting = {"max_running_requests": 48, "max_total_num_tokens": 8}
    assert unequal_limits(plain, plain) == unequal_limits(plain, {}) == ()
    assert unequal_limits(plain, drafting) == (
        (
            "max_running_requests is 4096 on one server and 48 on the other: they do not admit"
            " the same load"
        ),
    )
