"""The file of an n-gram corpus: answers that NGRAM may draft from.

SGLang reads a file of JSON strings, one a line. It is the only thing here that holds the text of
answers, so it stands beside the profile, where the user asked for it, and not in the study. None of
them may be to a prompt that is measured.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from autospec.errors import ConfigError

__all__ = ["ANSWERS", "SHARE", "check_corpus", "corpus_beside"]

#: What ``--corpus`` says to have the corpus built from plain decoding's own answers.
ANSWERS: Final = "answers"
#: Of the search prompts, set aside for it.
SHARE: Final = 1 / 3


def corpus_beside(output: Path) -> Path:
    """Where the corpus that was built for a profile stands: ``llama.corpus.jsonl``."""
    return output.absolute().with_name(f"{output.stem}.corpus.jsonl")


def check_corpus(path: Path) -> str:
    """SHA-256 of a corpus file, in hex, after checking that SGLang can read it.

    Raises:
        ConfigError: no such file, or a line that is no JSON string, with its number.
    """
    try:
        data = path.read_bytes()
        lines = data.decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise ConfigError(f"corpus {path}: cannot be read ({reason})") from error
    for number, line in enumerate(lines, start=1):
        if line.strip() and not _is_text(line):
            raise ConfigError(f"corpus {path}, line {number}: must be one JSON string")
    if not data.strip():
        raise ConfigError(f"corpus {path}: is empty, must hold an answer a line as JSON strings")
    return hashlib.sha256(data).hexdigest()


def _is_text(line: str) -> bool:
    try:
        return isinstance(json.loads(line), str)
    except ValueError:
        return False
