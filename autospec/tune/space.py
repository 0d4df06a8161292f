"""What may be tried: the values of each method's knobs, enumerated into valid configurations.

The space is finite and small, so it is listed once and never sampled outside. What an engine
refuses is not known here: the check is handed in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autospec.config import SpecConfig
from autospec.errors import ConfigError

__all__ = ["DEFAULT_VALUES", "Enumeration", "SearchSpace", "enumerate_space", "parse_space"]

Values = tuple[int | str, ...]

_TREE: Final[Mapping[str, Values]] = {
    "steps": (1, 2, 3, 4, 5, 6, 8),
    "topk": (1, 2, 4, 8),
    "tokens": (4, 8, 16, 32, 64),
}
_BLOCK: Final[Mapping[str, Values]] = {"block": (4, 8, 16)}

#: Algorithm -> knob -> values tried unless the user narrows them; knobs are the words of
#: ``SpecConfig``'s text form.
DEFAULT_VALUES: Final[Mapping[str, Mapping[str, Values]]] = {
    "NGRAM": {
        "tokens": (4, 8, 12, 16, 24, 32),
        "breadth": (1, 2, 4, 8, 10),
        "match": ("BFS", "PROB"),
        "sam_budget": (2, 4, 8, 16),
    },
    "STANDALONE": _TREE,
    "EAGLE": _TREE,
    "EAGLE3": _TREE,
    "NEXTN": _TREE,
    "DFLASH": _BLOCK,
    "DSPARK": _BLOCK,
}
_CORPUS_KNOB: Final = "sam_budget"
_WITHOUT_DRAFT: Final = frozenset({"NGRAM"})
#: The target's own checkpoint may carry the draft layers of these.
_DRAFT_OPTIONAL: Final = frozenset({"NEXTN", "DSPARK"})
_MATCHES: Final = ("BFS", "PROB")


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Which methods are searched, over which values.

    Attributes:
        algorithms: methods to search; empty means ``NGRAM`` and every method that has a draft.
            ``PLAIN`` may stand here: it is always measured and never a candidate.
        drafts: (algorithm, draft model) pairs; an algorithm may have several.
        narrowed: (``ALGORITHM.knob``, values) in place of ``DEFAULT_VALUES``.
        corpus: n-gram corpus that ``NGRAM`` is tried with too, each ``sam_budget`` (drafts of a
            step that come from it); without one that knob means nothing.

    Raises:
        ConfigError: an unknown algorithm, one without the draft model it needs, a draft for a
            method that takes none, or an unknown knob or value.
    """

    algorithms: tuple[str, ...] = ()
    drafts: tuple[tuple[str, str], ...] = ()
    narrowed: tuple[tuple[str, Values], ...] = ()
    corpus: str | None = None

    def __post_init__(self) -> None:
        for algorithm in (*self.algorithms, *(name for name, _ in self.drafts)):
            _check_algorithm(algorithm)
        for algorithm, path in self.drafts:
            if algorithm in {"PLAIN", *_WITHOUT_DRAFT}:
                raise ConfigError(f"{algorithm} takes no draft model, got {path!r}")
            if not path:
                raise ConfigError(f"{algorithm}: the draft model is empty, must be a path")
        for algorithm in self.searched:
            if not self.draft_models(algorithm):
                raise ConfigError(f"{algorithm} needs a draft model: --draft {algorithm}=PATH")
        _check_narrowed(self.narrowed)

    @property
    def searched(self) -> tuple[str, ...]:
        """The methods that give candidates, sorted."""
        given = self.algorithms or ("NGRAM", *(name for name, _ in self.drafts))
        return tuple(sorted(set(given) - {"PLAIN"}))

    def draft_models(self, algorithm: str) -> tuple[str | None, ...]:
        """Draft models to try with a method: none for ``NGRAM``, the target itself for some."""
        given = tuple(dict.fromkeys(path for name, path in self.drafts if name == algorithm))
        if not given and algorithm in _WITHOUT_DRAFT | _DRAFT_OPTIONAL:
            return (None,)
        return given

    def values(self, algorithm: str) -> dict[str, Values]:
        """Knob -> values of one method, narrowed where the user asked for it."""
        narrowed = dict(self.narrowed)
        return {
            knob: narrowed.get(f"{algorithm}.{knob}", values)
            for knob, values in DEFAULT_VALUES[algorithm].items()
            if knob != _CORPUS_KNOB or self.corpus is not None
        }


@dataclass(frozen=True, slots=True)
class Enumeration:
    """The space, listed.

    Attributes:
        candidates: what may run, sorted, without duplicates and without ``PLAIN``.
        refused: what may not, sorted, with the rules it breaks.
    """

    candidates: tuple[SpecConfig, ...]
    refused: tuple[tuple[SpecConfig, str], ...]


def enumerate_space(
    space: SearchSpace, refusals: Callable[[SpecConfig], Sequence[str]]
) -> Enumeration:
    """List every configuration of a space, those that cannot run or repeat another apart.

    Args:
        space: the methods and values.
        refusals: the rules of the engine that a configuration breaks, one line each.
    """
    listed = {config for name in space.searched for config in _method(space, name)}
    candidates: list[SpecConfig] = []
    refused: list[tuple[SpecConfig, str]] = []
    for config in sorted(listed):
        reasons = [*_wasteful(config), *refusals(config)]
        if reasons:
            refused.append((config, "; ".join(reasons)))
        else:
            candidates.append(config)
    return Enumeration(tuple(candidates), tuple(refused))


def parse_space(text: str, space: SearchSpace | None = None) -> SearchSpace:
    """Narrow a space by words such as ``NGRAM.tokens=4,8 match=BFS steps=1,3``.

    A word without an algorithm holds for every searched method that has the knob; one with an
    algorithm goes before it. ``tokens`` concerns trees: a chain always checks ``steps + 1``.

    Raises:
        ConfigError: a word that is unknown, given twice, concerns no searched method, or has a
            value of the wrong type.
    """
    space = space or SearchSpace()
    common: dict[str, Values] = {}
    own: dict[str, Values] = {}
    seen: set[str] = set()
    for word in text.split():
        name, separator, listed = word.partition("=")
        if not separator:
            raise ConfigError(f"space: {word!r} must be KNOB=VALUE,... or ALGORITHM.KNOB=VALUE,...")
        if name in seen:
            raise ConfigError(f"space: {name} is given twice")
        seen.add(name)
        target = own if "." in name else common
        for full_name, knob in _meant(space, name):
            target[full_name] = _read_values(name, knob, listed)
    return replace(space, narrowed=tuple(sorted({**dict(space.narrowed), **common, **own}.items())))


def _meant(space: SearchSpace, name: str) -> list[tuple[str, str]]:
    algorithm, _, knob = name.rpartition(".")
    if not any(knob in knobs for knobs in DEFAULT_VALUES.values()):
        raise ConfigError(f"space: unknown knob {name!r}, known: {_known()}")
    if algorithm:
        _check_algorithm(algorithm)
    meant = [
        (f"{searched}.{knob}", knob)
        for searched in space.searched
        if knob in space.values(searched) and algorithm in ("", searched)
    ]
    if not meant:
        searched_names = ", ".join(space.searched) or "PLAIN only"
        raise ConfigError(f"space: {name} concerns no searched method ({searched_names})")
    return meant


def _read_values(name: str, knob: str, listed: str) -> Values:
    values: list[int | str] = []
    for item in listed.split(","):
        if knob == "match":
            if item not in _MATCHES:
                raise ConfigError(f"space: {name} is {item!r}, must be one of {_MATCHES}")
            values.append(item)
        elif item.isascii() and item.isdigit() and int(item) > 0:
            values.append(int(item))
        else:
            raise ConfigError(f"space: {name} is {item!r}, must be whole numbers of at least 1")
    return tuple(sorted(set(values), key=lambda value: (str(type(value)), value)))


def _method(space: SearchSpace, algorithm: str) -> Iterator[SpecConfig]:
    values = space.values(algorithm)
    bare = {knob: given for knob, given in values.items() if knob != _CORPUS_KNOB}
    for draft in space.draft_models(algorithm):
        for chosen in itertools.product(*bare.values()):
            yield _config(algorithm, draft, dict(zip(bare, chosen, strict=True)))
    if _CORPUS_KNOB in values and space.corpus is not None:
        place = ("ngram_external_corpus_path", space.corpus)
        for chosen in itertools.product(*values.values()):
            config = _config(algorithm, None, dict(zip(values, chosen, strict=True)))
            yield replace(config, options=(*config.options, place))


def _config(algorithm: str, draft: str | None, knobs: Mapping[str, int | str]) -> SpecConfig:
    words = dict(knobs)
    if words.get("topk") == 1:
        words["tokens"] = int(words["steps"]) + 1
    bare = SpecConfig.parse(" ".join([algorithm, *(f"{k}={v}" for k, v in words.items())]))
    return replace(bare, draft_model=draft)


def _wasteful(config: SpecConfig) -> list[str]:
    """Shapes that an engine accepts and that a smaller one equals."""
    steps, tokens = config.num_steps, config.num_draft_tokens
    breadth = config.option("ngram_max_bfs_breadth")
    reasons = []
    if steps and tokens and tokens < steps + 1:
        reasons.append(f"tokens={tokens} cannot hold the root and a path of steps={steps}")
    if tokens and isinstance(breadth, int) and breadth > tokens:
        reasons.append(f"breadth={breadth} is more than the tokens={tokens} of a step")
    return reasons


def _check_algorithm(algorithm: str) -> None:
    if algorithm not in DEFAULT_VALUES and algorithm != "PLAIN":
        known = ", ".join(["PLAIN", *DEFAULT_VALUES])
        raise ConfigError(f"unknown algorithm {algorithm!r}, must be one of {known}")


def _check_narrowed(narrowed: Sequence[tuple[str, Values]]) -> None:
    for name, values in narrowed:
        algorithm, _, knob = name.partition(".")
        if knob not in DEFAULT_VALUES.get(algorithm, {}):
            raise ConfigError(f"space: {name!r} is no ALGORITHM.knob, known: {_known()}")
        if not values:
            raise ConfigError(f"space: {name} has no values")


def _known() -> str:
    return "; ".join(f"{name}: {', '.join(knobs)}" for name, knobs in DEFAULT_VALUES.items())
