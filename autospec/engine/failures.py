"""What a server's log says about why it failed. Pure: text in, one line out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = ["Failure", "Kind", "diagnose", "is_fatal"]


class Kind(Enum):
    """What a failure calls for."""

    CRASH = "crash"
    OUT_OF_MEMORY = "out of memory"
    PORT_TAKEN = "port taken"
    NOT_INSTALLED = "not installed"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a server failed: one line, without the log."""

    cause: str
    kind: Kind = Kind.CRASH


#: SGLang goes on for 5 to 120 s after these, and never becomes ready.
_FATAL: Final = re.compile(
    r"Received sigquit from a child process"
    r"|SIGQUIT received\."
    r"|Scheduler hit an exception"
    r"|Initialization failed\. warmup error"
    r"|error while attempting to bind on address"
    r"|scheduler died during initialization"
)

#: Known texts, the telling ones first, and what they mean. Groups fill the braces.
_SIGNATURES: Final[tuple[tuple[re.Pattern[str], str, Kind], ...]] = tuple(
    (re.compile(pattern), cause, kind)
    for pattern, cause, kind in (
        (
            r"No module named '?sglang\b",
            "SGLang is not installed for this Python",
            Kind.NOT_INSTALLED,
        ),
        (
            r"error while attempting to bind on address \('([^']*)', (\d+)",
            "another process listens on {0} port {1}",
            Kind.PORT_TAKEN,
        ),
        (
            r"to share the same vocabulary.*? target vocab_size=(\d+).*?draft vocab_size=(\d+)",
            "the draft model has another vocabulary: {1} tokens, the target has {0}",
            Kind.CRASH,
        ),
        (
            r"selected index k out of range",
            "the draft tree has more tokens than steps and topk can propose",
            Kind.CRASH,
        ),
        (r"(min_bfs_breadth must be less than or equal to[^\n]*)", "{0}", Kind.CRASH),
        (r"Unknown speculative algorithm name: (\S+)", "SGLang has no algorithm {0}", Kind.CRASH),
        (
            r"Not enough memory\. Please try to increase --mem-fraction-static",
            "out of memory: nothing is left for the KV cache (mem_fraction_static is too small)",
            Kind.OUT_OF_MEMORY,
        ),
        (
            r"Capture [^\n]*graph failed: ([^\n]*out of memory[^\n]*)",
            "out of memory while capturing CUDA graphs: {0}",
            Kind.OUT_OF_MEMORY,
        ),
        (r"Capture [^\n]*graph failed: ([^\n]+)", "graph capture failed: {0}", Kind.CRASH),
        (
            r"(Prefill|Decode) out of memory\. Try to lower your batch size",
            "out of memory: the KV cache is full ({0})",
            Kind.OUT_OF_MEMORY,
        ),
        (
            r"alloc_req_slots runs out of memory",
            "out of memory: no request slot is left",
            Kind.OUT_OF_MEMORY,
        ),
        (
            r"(?:OutOfMemoryError: |RuntimeError: )?((?:CUDA|HIP|XPU) out of memory[^\n.]*)",
            "out of memory: {0}",
            Kind.OUT_OF_MEMORY,
        ),
        (
            r"(can't allocate memory|Cannot allocate memory|std::bad_alloc|\bMemoryError\b)",
            "out of memory: {0}",
            Kind.OUT_OF_MEMORY,
        ),
        (
            r"scheduler died during initialization \(exit code: -9\)",
            "the scheduler was killed, probably by the system's out-of-memory killer",
            Kind.OUT_OF_MEMORY,
        ),
        (r"(?m)^\S*: error: ([^\n]+)", "SGLang refused its flags: {0}", Kind.CRASH),
    )
)
_EXCEPTION: Final = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?::.*)?$"
)
_CODE: Final = re.compile(r"(?m)^    .*$")
_TRACEBACK: Final = "Traceback (most recent call last)"
_CAUSE_LENGTH: Final = 300


def is_fatal(log: str) -> bool:
    """Whether the log shows that the server can never become ready."""
    return _FATAL.search(log) is not None


def diagnose(log: str, exit_code: int | None = None) -> Failure:
    """Find the most telling line of a failed server's log.

    Args:
        log: the end of the log; a traceback in it must be whole to be found.
        exit_code: the server's, with 128 + signal for a signal; None while it still runs.
    """
    # A traceback also shows the code that raised, which spells the message as a template.
    said = _CODE.sub("", log)
    for pattern, cause, kind in _SIGNATURES:
        if found := pattern.search(said):
            return Failure(_shorten(cause.format(*found.groups())), kind)
    if raised := _raised(log):
        return Failure(_shorten(raised))
    if exit_code == 137:
        return Failure(
            "killed by SIGKILL without a message, probably by the system's out-of-memory killer",
            Kind.OUT_OF_MEMORY,
        )
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    ending = "still running" if exit_code is None else f"exit code {exit_code}"
    return Failure(_shorten(f"{ending}, last line of its log: {lines[-1] if lines else '(none)'}"))


def _raised(log: str) -> str | None:
    """The exception that ended the scheduler, else the last one of the log."""
    _, marked, after = log.partition("Scheduler hit an exception")
    text = after if marked else log
    if _TRACEBACK not in text:
        return None
    # Other tracebacks follow the scheduler's: what broke because it was gone.
    lines = re.split(r"\n\[", text, maxsplit=1)[0].splitlines() if marked else text.splitlines()
    raised = [index for index, line in enumerate(lines) if _EXCEPTION.match(line)]
    if not raised:
        return None
    line = lines[raised[-1]]
    if ":" in line:
        return line
    code = [at for at in lines[: raised[-1]] if at.startswith("    ") and at.strip(" ^~")]
    return f"{line} at `{code[-1].strip()}`" if code else line


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _CAUSE_LENGTH else text[: _CAUSE_LENGTH - 3] + "..."
