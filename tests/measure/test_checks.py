"""What makes a pass less trustworthy is said, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.measure.checks import reusable_prefixes, warnings_of
from autospec.measurement import Request, RequestRecord, Run, ServerDelta

REQUESTS = [
    Request(0, (1, 2, 3, 4), 5),
    Request(1, (1, 2, 7, 8), 5),
    Request(2, (6, 2, 3, 4), 5),
]
RECORDS = tuple(
    RequestRecord(r.prompt, 0.0, 5.0, chunk_s=(1.0, 5.0), chunk_tokens=(1, 5), completion_tokens=5)
    for r in REQUESTS
)
RUN = Run("tune", 2, 0, 3.0, (0.0, 5.0), 6.0, RECORDS, ServerDelta(9, 1.5, 10.0, 12), 0.1)


def changed(**changes: object) -> Run:
    """The clean pass with the first record changed."""
    return replace(RUN, records=(replace(RECORDS[0], **changes), *RECORDS[1:]))  # type: ignore[arg-type]  # each test names real fields


@pytest.mark.parametrize(
    "run",
    [
        RUN,
        replace(RUN, server=None),
        replace(RUN, window_s=(1.0, 4.0), client_busy_share=0.5),
        changed(cached_tokens=2),
        replace(RUN, server=ServerDelta(9, 1.5, 10.0, 18)),
    ],
    ids=["clean", "no-counters", "at-the-limits", "shared-prefix", "one-step-beyond-each-end"],
)
def test_a_sound_pass_has_no_warnings(run: Run) -> None:
    """Neither has one whose prompts begin alike, or whose requests end within a verify step."""
    assert warnings_of(run, REQUESTS) == ()


@pytest.mark.parametrize(
    ("run", "warning"),
    [
        (
            changed(error="status 500:\n  out\nof luck", completion_tokens=0, chunk_tokens=()),
            "1 of 3 requests failed, the first with: status 500: out of luck",
        ),
        (
            replace(RUN, window_s=(1.0, 3.9)),
            "all 2 slots were in use for only 2.9 of 6.0 s; more requests a pass would help",
        ),
        (
            replace(RUN, client_busy_share=0.51),
            "the load generator used 51% of its core and may have limited the server",
        ),
        (
            changed(cached_tokens=3),
            "1 of 3 requests found more of their prompt in the prefix cache than this pass has put",
        ),
        (changed(num_retractions=2), "the server was short of KV cache and began 1 of 3 anew"),
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
    run = replace(changed(error="lost", cached_tokens=4), client_busy_share=1.0)
    assert len(warnings_of(run, REQUESTS)) == 3


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
