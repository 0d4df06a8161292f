"""Prompt files: what a line may say, and what is wrong with one that cannot be used.

Four forms of file: JSON lines, one JSON array of the same objects, one text a line, or any of
them on standard input (``-``). No error repeats what stood in a prompt.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autospec.errors import WorkloadError
from autospec.measure.prompt import Prompt, read_prompt
from autospec.measurement import Sampling

__all__ = ["Workload", "read_workload"]

_JSON_LINES: Final = frozenset({".jsonl", ".ndjson"})
_TEXT_LINES: Final = frozenset({".txt", ".text"})


@dataclass(frozen=True, slots=True)
class Workload:
    """The prompts of one file, each different from all others.

    Attributes:
        name: the file's name, or ``standard input``.
        prompts: in the file's order; ``prompts[i].index == i``.
        sampling: how the server is asked to pick tokens.
        fingerprint: SHA-256, in hex, over prompts and sampling; the file's name is not in it.
        unit: what ``Prompt.line`` counts: ``line``, or ``item`` of a JSON array.
        warnings: what was left out of the file, one line each.
    """

    name: str
    prompts: tuple[Prompt, ...]
    sampling: Sampling
    fingerprint: str
    unit: str = "line"
    warnings: tuple[str, ...] = ()

    def place(self, prompt: Prompt) -> str:
        """Where a prompt stands, for error messages: ``traffic.jsonl, line 12``."""
        return f"{self.name}, {self.unit} {prompt.line}"


def read_workload(
    path: Path | str, *, default_max_new_tokens: int, sampling: Sampling | None = None
) -> Workload:
    """Read a prompt file.

    A prompt that repeats an earlier one is left out: an engine that remembers its outputs (NGRAM)
    would answer the copy from memory. White space makes no difference there.

    Args:
        path: the file, or ``-`` for standard input.
        default_max_new_tokens: longest answer to a prompt that names none.
        sampling: how the server is asked to pick tokens; greedy by default.

    Raises:
        WorkloadError: the file is missing, empty or not UTF-8, or a line of it is wrong; with
            file, line and field.
    """
    if default_max_new_tokens < 1:
        raise WorkloadError(f"max_new_tokens is {default_max_new_tokens}, must be at least 1")
    name = "standard input" if str(path) == "-" else str(path)
    text = _read_text(path, name)
    unit, entries = _entries(text, Path(path).suffix.lower(), name)
    prompts: dict[object, Prompt] = {}
    total = 0
    for line, entry in entries:
        total += 1
        prompt = read_prompt(
            entry,
            where=f"{name}, {unit} {line}",
            index=len(prompts),
            line=line,
            default_max_new_tokens=default_max_new_tokens,
        )
        prompts.setdefault(prompt.content_key, prompt)
    if not prompts:
        raise WorkloadError(f"{name}: has no prompts, must have at least one")
    repeated = total - len(prompts)
    kept = tuple(prompts.values())
    sampling = sampling or Sampling()
    return Workload(
        name=name,
        prompts=kept,
        sampling=sampling,
        fingerprint=_fingerprint(kept, sampling),
        unit=unit,
        warnings=(f"{name}: {repeated} of {total} prompts repeat earlier ones and were left out",)
        if repeated
        else (),
    )


def _read_text(path: Path | str, name: str) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError(f"{name}: cannot be read ({error.strerror})") from error
    if not data.strip():
        raise WorkloadError(f"{name}: is empty, must have at least one prompt")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise WorkloadError(f"{name}, line {line}: not UTF-8 at byte {error.start}") from error


def _entries(text: str, suffix: str, name: str) -> tuple[str, Iterator[tuple[int, Any]]]:
    """Unit of counting, and the number and content of each entry of the file."""
    begin = text.lstrip()
    if suffix in _TEXT_LINES:
        return "line", _lines(text)
    if begin[:1] == "[" and begin[1:].lstrip()[:1] == "{":
        return "item", iter(enumerate(_parse(text, name), start=1))
    if suffix in _JSON_LINES or begin[:1] == "{":
        return "line", ((n, _parse(line, f"{name}, line {n}")) for n, line in _lines(text))
    return "line", _lines(text)


def _lines(text: str) -> Iterator[tuple[int, str]]:
    # Only a line feed ends a line: str.splitlines would also cut at U+2028, which JSON allows.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, line.strip()


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        problem = f"{error.msg} at {line}column {error.colno}"
        raise WorkloadError(f"{where}: not JSON, or cut off ({problem})") from error
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{where}: not JSON (a number too long, or nested too deep)") from error


def _fingerprint(prompts: tuple[Prompt, ...], sampling: Sampling) -> str:
    digest = hashlib.sha256()
    parts: list[object] = [[sampling.temperature, sampling.top_p]]
    parts += [[p.content, p.max_new_tokens, p.label] for p in prompts]
    for part in parts:
        digest.update(json.dumps(part).encode() + b"\n")
    return digest.hexdigest()
