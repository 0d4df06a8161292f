"""Finding the cause in a failed server's log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autospec.engine.failures import Kind, diagnose, is_fatal

CRASH = (Path(__file__).parent / "payloads" / "crash.log").read_text()
SCHEDULER = "[TP0] Scheduler hit an exception: Traceback (most recent call last):\n  File ...\n"


@pytest.mark.parametrize(
    ("log", "cause", "kind"),
    [
        (
            (
                f"{SCHEDULER}RuntimeError: Not enough memory. Please try to increase"
                " --mem-fraction-static. Current value: mem_fraction_static=0.1\n"
            ),
            "nothing is left for the KV cache",
            Kind.OUT_OF_MEMORY,
        ),
        (
            f"{SCHEDULER}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "out of memory: CUDA out of memory",
            Kind.OUT_OF_MEMORY,
        ),
        (
            (
                f"{SCHEDULER}Exception: Capture cuda graph failed: CUDA out of memory. Tried\n"
                "Possible solutions:\n1. set --mem-fraction-static to a smaller value"
            ),
            "out of memory while capturing CUDA graphs",
            Kind.OUT_OF_MEMORY,
        ),
        (
            (
                f"{SCHEDULER}Exception: Capture cuda graph failed: no kernel image\n"
                "Possible solutions:\n1. set --mem-fraction-static to a smaller value"
            ),
            "graph capture failed: no kernel image",
            Kind.CRASH,
        ),
        (
            "RuntimeError: Decode out of memory. Try to lower your batch size.\n",
            "the KV cache is full (Decode)",
            Kind.OUT_OF_MEMORY,
        ),
        (
            (
                "RuntimeError: [enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't"
                " allocate memory: you tried to allocate 99 bytes."
            ),
            "out of memory: can't allocate memory",
            Kind.OUT_OF_MEMORY,
        ),
        (
            "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If",
            "the scheduler was killed, probably by the system's out-of-memory killer",
            Kind.OUT_OF_MEMORY,
        ),
        (
            (
                "ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000):"
                " address already in use"
            ),
            "another process listens on 127.0.0.1 port 30000",
            Kind.PORT_TAKEN,
        ),
        (
            (
                f"{SCHEDULER}ValueError: STANDALONE speculative decoding requires the draft model"
                " to share the same vocabulary as the target model, but got target"
                " vocab_size=49152 and draft vocab_size=32000"
            ),
            "the draft model has another vocabulary: 32000 tokens, the target has 49152",
            Kind.CRASH,
        ),
        (
            f"{SCHEDULER}RuntimeError: selected index k out of range",
            "the draft tree has more tokens than steps and topk can propose",
            Kind.CRASH,
        ),
        (
            "ValueError: min_bfs_breadth must be less than or equal to max_bfs_breadth, current 9",
            "min_bfs_breadth must be less than or equal to max_bfs_breadth, current 9",
            Kind.CRASH,
        ),
        (
            "ValueError: Unknown speculative algorithm name: FOO",
            "SGLang has no algorithm FOO",
            Kind.CRASH,
        ),
        (
            "usage: launch_server.py [-h]\nlaunch_server.py: error: unrecognized arguments: --foo",
            "SGLang refused its flags: unrecognized arguments: --foo",
            Kind.CRASH,
        ),
        (
            (
                "/usr/bin/python: Error while finding module specification for"
                " 'sglang.launch_server' (ModuleNotFoundError: No module named 'sglang')"
            ),
            "SGLang is not installed for this Python",
            Kind.NOT_INSTALLED,
        ),
    ],
)
def test_known_failures_are_explained(log: str, cause: str, kind: Kind) -> None:
    """Each failure text of SGLang gives its cause and what kind of failure it is."""
    failure = diagnose(f"loading\n{log}\nkill_process_tree called\n", 137)
    assert cause in failure.cause
    assert failure.kind is kind


def test_a_recorded_crash_names_the_schedulers_exception() -> None:
    """In a real log the exception of the scheduler is found, and the log is fatal."""
    failure = diagnose(CRASH, 137)
    assert failure.cause == "AttributeError: 'NoneType' object has no attribute 'shape'"
    assert failure.kind is Kind.CRASH
    assert is_fatal(CRASH)


def test_what_broke_afterwards_is_not_the_cause() -> None:
    """Tracebacks that follow the scheduler's do not hide it."""
    log = (
        f"{SCHEDULER}KeyError: 'rope'\n\n[12:00] SIGQUIT received.\n[12:01] Traceback (most recent"
        " call last):\nrequests.exceptions.ConnectionError: refused\n"
    )
    assert diagnose(log, 137).cause == "KeyError: 'rope'"


def test_code_in_a_traceback_is_not_taken_for_its_message() -> None:
    """The line that raises shows the message unfilled; the exception's own line counts."""
    log = (
        'Traceback (most recent call last):\n  File "spec_info.py", line 65, in from_string\n'
        '    raise ValueError(f"Unknown speculative algorithm name: {name}")\n'
        "ValueError: Unknown speculative algorithm name: FOO\n"
    )
    assert diagnose(log, 1).cause == "SGLang has no algorithm FOO"


def test_an_assertion_without_a_message_shows_its_code() -> None:
    """An empty AssertionError is told by the line that raised it."""
    log = (
        'Traceback (most recent call last):\n  File "a.py", line 3, in check\n'
        "    assert topk == 1\n           ^^^^^^^^^\nAssertionError\n"
    )
    assert diagnose(log, 1).cause == "AssertionError at `assert topk == 1`"


def test_a_chained_traceback_ends_with_its_last_exception() -> None:
    """The exception that came out last is the cause."""
    log = (
        "Traceback (most recent call last):\n  x\nOSError: no file\n\nDuring handling of the above"
        " exception, another exception occurred:\n\nTraceback (most recent call last):\n  y\n"
        "pkg.errors.LoadError: no weights in /models/x\n"
    )
    assert diagnose(log, 1).cause == "pkg.errors.LoadError: no weights in /models/x"


def test_sigkill_without_a_word_is_probably_the_oom_killer() -> None:
    """A server that was killed and left no message most likely ran the machine out of memory."""
    failure = diagnose("loading weights\n", 137)
    assert failure.kind is Kind.OUT_OF_MEMORY
    assert "probably" in failure.cause


def test_an_unknown_end_shows_code_and_last_line() -> None:
    """With nothing known in the log its last line is all there is."""
    assert diagnose("one\ntwo\n\n", 3).cause == "exit code 3, last line of its log: two"
    assert diagnose("", 3).cause == "exit code 3, last line of its log: (none)"
    assert diagnose("one", None).cause == "still running, last line of its log: one"


@pytest.mark.parametrize(
    "line",
    [
        "[TP0] Scheduler hit an exception: Traceback",
        "Received sigquit from a child process. It usually means the child failed.",
        "SIGQUIT received. signum=None, frame=None. It usually means one child failed.",
        "Initialization failed. warmup error: Traceback",
        "error while attempting to bind on address ('127.0.0.1', 1): address already in use",
    ],
)
def test_lines_after_which_a_server_never_gets_ready_are_fatal(line: str) -> None:
    """Nothing is waited for once the server is certain to fail."""
    assert is_fatal(f"loading\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "UserWarning: Only CUDA, HIP and XPU support AWQ currently.",
        "KV cache pool is full. Retract requests. #retracted_reqs: 1",
        "Ignore import error when loading sglang.srt.models.falcon: No module named 'x'",
        "The server is fired up and ready to roll!",
    ],
)
def test_ordinary_lines_are_not_fatal(line: str) -> None:
    """Warnings of a healthy server do not end the wait."""
    assert not is_fatal(f"loading\n{line}\n")


@given(st.text(), st.none() | st.integers(0, 255))
def test_any_log_gives_one_short_line(log: str, code: int | None) -> None:
    """Whatever the log holds, the cause is one line of bounded length."""
    cause = diagnose(log, code).cause
    assert cause
    assert len(cause) <= 300
    assert len(cause.splitlines()) == 1
