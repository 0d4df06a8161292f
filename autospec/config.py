"""A speculative-decoding configuration: what a trial tries and a profile deploys.

Shape rules that hold for any engine live here; what SGLang in particular accepts is
``autospec.engine.constraints``.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import total_ordering
from typing import Final

from autospec.errors import ConfigError

__all__ = ["OPTION_WORDS", "PLAIN", "SpecConfig"]

#: Method-specific options and the short word each has in the text form.
OPTION_WORDS: Final = {
    "ngram_max_bfs_breadth": "breadth",
    "ngram_min_bfs_breadth": "min_breadth",
    "ngram_match_type": "match",
    "ngram_max_trie_depth": "trie_depth",
    "ngram_external_sam_budget": "sam_budget",
    "ngram_external_corpus_path": "corpus",
    "block_size": "block",
}
_TEXT_OPTIONS: Final = frozenset({"ngram_match_type", "ngram_external_corpus_path"})
_PLACES: Final = frozenset({"ngram_external_corpus_path"})
_SHAPE_WORDS: Final = {"num_steps": "steps", "topk": "topk", "num_draft_tokens": "tokens"}
_LEAST: Final = {"num_steps": 0, "topk": 1, "num_draft_tokens": 1}
_FIELD_OF_WORD: Final = {
    **{word: name for name, word in (_SHAPE_WORDS | OPTION_WORDS).items()},
    "draft": "draft_model",
}


@total_ordering
@dataclass(frozen=True, slots=True)
class SpecConfig:
    """One way to decode: plain, or a drafting method with its shape.

    ``str(config)`` is the one canonical text form, and ``SpecConfig.parse`` reads it back:
    ``STANDALONE steps=3 topk=4 tokens=8 draft=/models/small``.

    Attributes:
        algorithm: ``PLAIN`` or SGLang's name of the method (``NGRAM``, ``EAGLE3``, ...).
        num_steps: depth of drafting; None leaves it to the method.
        topk: branches per drafted level; 1 is a chain.
        num_draft_tokens: tokens checked in one verify step, root included.
        draft_model: folder or repository of the draft model, if the method has one.
        options: method-specific settings, sorted by name; names are the keys of ``OPTION_WORDS``.

    Raises:
        ConfigError: a number below its least value, an unknown option, or a shape on ``PLAIN``.
    """

    algorithm: str
    num_steps: int | None = None
    topk: int | None = None
    num_draft_tokens: int | None = None
    draft_model: str | None = None
    options: tuple[tuple[str, int | str], ...] = ()

    def __post_init__(self) -> None:
        if not self.algorithm.isidentifier() or not self.algorithm.isupper():
            raise ConfigError(f"algorithm {self.algorithm!r} must be an upper-case name")
        object.__setattr__(self, "options", tuple(sorted(self.options)))
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"{self.algorithm}: {name} is {value}, must be at least {least}")
        for name, option in self.options:
            _check_option(self.algorithm, name, option)
        if self.is_plain and self._words():
            raise ConfigError(f"PLAIN takes no speculative settings, got {' '.join(self._words())}")

    def __str__(self) -> str:
        return " ".join([self.algorithm, *self._words()])

    def __lt__(self, other: SpecConfig) -> bool:
        return self._sort_key() < other._sort_key()

    @property
    def is_plain(self) -> bool:
        """Whether this is decoding without speculation."""
        return self.algorithm == "PLAIN"

    @property
    def is_chain(self) -> bool:
        """Whether the drafts of a request follow each other; plain decoding's none do so too."""
        return self.topk in {None, 1} and self.option("ngram_max_bfs_breadth") in {None, 1}

    @property
    def label(self) -> str:
        """The text form without the places of draft model and corpus, for tables."""
        options = tuple(option for option in self.options if option[0] not in _PLACES)
        return str(replace(self, draft_model=None, options=options))

    def option(self, name: str) -> int | str | None:
        """The value of a method-specific option, or None when it is not set."""
        return dict(self.options).get(name)

    @property
    def corpus(self) -> str | None:
        """File of the n-gram corpus that it drafts from, if it has one."""
        path = self.option("ngram_external_corpus_path")
        return None if path is None else str(path)

    @classmethod
    def parse(cls, text: str) -> SpecConfig:
        """Read the text form.

        Raises:
            ConfigError: the text is empty, has an unknown word or a value of the wrong type.
        """
        try:
            algorithm, *words = shlex.split(text)
        except ValueError as error:
            raise ConfigError(f"configuration {text!r} cannot be read: {error}") from error
        fields: dict[str, int | str] = {}
        for word in words:
            key, separator, value = word.partition("=")
            name = _FIELD_OF_WORD.get(key)
            if name is None or not separator:
                known = ", ".join(_FIELD_OF_WORD)
                raise ConfigError(
                    f"configuration {text!r}: {word!r} is none of {known} with =VALUE"
                )
            if name in fields:
                raise ConfigError(f"configuration {text!r}: {key} is given twice")
            fields[name] = _read_value(text, name, value)
        options = tuple((name, fields.pop(name)) for name in OPTION_WORDS if name in fields)
        return cls(algorithm, options=options, **fields)  # type: ignore[arg-type]  # typed by _read_value

    def _words(self) -> list[str]:
        shape = [(word, getattr(self, name)) for name, word in _SHAPE_WORDS.items()]
        options = [(OPTION_WORDS[name], value) for name, value in self.options]
        pairs = [*shape, *options, ("draft", self.draft_model)]
        return [f"{word}={shlex.quote(str(value))}" for word, value in pairs if value is not None]

    def _sort_key(self) -> tuple[object, ...]:
        values = [getattr(self, name) for name in _SHAPE_WORDS]
        shape = tuple(-1 if value is None else value for value in values)
        options = tuple((name, isinstance(value, str), value) for name, value in self.options)
        draft = (self.draft_model is not None, self.draft_model or "")
        return (not self.is_plain, self.algorithm, *shape, options, draft)


def _read_value(text: str, name: str, value: str) -> int | str:
    if name == "draft_model" or name in _TEXT_OPTIONS:
        return value
    try:
        return int(value)
    except ValueError:
        raise ConfigError(f"configuration {text!r}: {name} is {value!r}, not a number") from None


def _check_option(algorithm: str, name: str, value: int | str) -> None:
    if name not in OPTION_WORDS:
        raise ConfigError(f"{algorithm}: option {name!r} is none of {', '.join(OPTION_WORDS)}")
    wanted = str if name in _TEXT_OPTIONS else int
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ConfigError(f"{algorithm}: {name} is {value!r}, must be of type {wanted.__name__}")
    if isinstance(value, int) and value < 0:
        raise ConfigError(f"{algorithm}: {name} is {value}, must be at least 0")


#: Decoding without speculation, the arm every other is compared with.
PLAIN: Final = SpecConfig("PLAIN")
