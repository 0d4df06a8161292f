"""Choosers of the next trial: one interface, a dict of names, and the two that know nothing.

Values are log ratios to plain decoding, to be made large. A sampler is a function of its
candidates, its seed and what it was told, so telling it the trials of an earlier session puts it
where it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from autospec.config import SpecConfig
from autospec.errors import ConfigError
from autospec.tune.seen import Seen
from autospec.tune.shapes import method

__all__ = ["LEAST_GAIN", "SAMPLERS", "Proposal", "Sampler", "encode", "make_sampler"]

#: A candidate of which a sampler expects less than this, as a log ratio, is not worth a trial.
LEAST_GAIN: Final = 0.001


@dataclass(frozen=True, slots=True)
class Proposal:
    """A configuration to try next, and why it.

    Attributes:
        config: what to try.
        reason: one line.
        gain: expected improvement on the best so far, as a log ratio, where the sampler knows.
    """

    config: SpecConfig
    reason: str
    gain: float | None = None


class Sampler(Protocol):
    """What every sampler promises; ``tests/tune/contract.py`` holds it to this."""

    def ask(self) -> Proposal | None:
        """The next candidate, or None when each was asked for or told."""
        ...

    def tell(self, config: SpecConfig, value: float | None, seen: Seen | None = None) -> None:
        """Report a result; a configuration that is no candidate is ignored, unless it is plain.

        Args:
            config: what was tried, asked for or not.
            value: the objective, larger is better; None or not finite when it could not run.
            seen: what the trial showed beside it, as far as it is known.
        """
        ...


#: Whether a candidate can be measured without a new launch.
Running = Callable[[SpecConfig], bool]


class InOrder:
    """A sampler that goes through a list once, whatever it is told."""

    def __init__(self, order: Sequence[SpecConfig], reason: str) -> None:
        self._waiting = dict.fromkeys(order)
        self._reason = reason

    def ask(self) -> Proposal | None:
        """The first of the list that was neither asked for nor told."""
        config = next(iter(self._waiting), None)
        if config is None:
            return None
        del self._waiting[config]
        return Proposal(config, self._reason)

    def tell(self, config: SpecConfig, value: float | None, seen: Seen | None = None) -> None:  # noqa: ARG002  a part of the protocol
        """Take a configuration off the list."""
        self._waiting.pop(config, None)


def grid(candidates: Sequence[SpecConfig], seed: int) -> Sampler:  # noqa: ARG001  one signature for all
    """Every candidate in sorted order."""
    return InOrder(sorted(candidates), "next of the grid")


def random(candidates: Sequence[SpecConfig], seed: int) -> Sampler:
    """Every candidate in an order drawn from the seed."""
    ordered = sorted(candidates)
    shuffled = np.random.default_rng(seed).permutation(len(ordered))
    return InOrder([ordered[int(i)] for i in shuffled], f"drawn at random, seed {seed}")


def _gp(candidates: Sequence[SpecConfig], seed: int) -> Sampler:
    from autospec.tune.gp import GPSampler  # noqa: PLC0415  skopt takes over a second to import

    return GPSampler(candidates, seed)


def _structured(
    candidates: Sequence[SpecConfig], seed: int, running: Running = lambda _config: False
) -> Sampler:
    from autospec.tune.structured import StructuredSampler  # noqa: PLC0415  it loads skopt

    return StructuredSampler(candidates, seed, running=running)


#: Name on the command line -> (candidates, seed) -> sampler.
SAMPLERS: Final[dict[str, Callable[[Sequence[SpecConfig], int], Sampler]]] = {
    "gp": _gp,
    "grid": grid,
    "random": random,
    "structured": _structured,
}


def make_sampler(
    name: str, candidates: Sequence[SpecConfig], seed: int, *, running: Running | None = None
) -> Sampler:
    """Build a sampler by name.

    Args:
        name: of ``SAMPLERS``.
        candidates: what it may ask for.
        seed: of its choices.
        running: says whether a candidate can be measured without a new launch; only ``structured``
            weighs what a trial costs.

    Raises:
        ConfigError: no sampler has that name.
    """
    if name not in SAMPLERS:
        raise ConfigError(f"unknown sampler {name!r}, must be one of {', '.join(SAMPLERS)}")
    if name == "structured" and running is not None:
        return _structured(candidates, seed, running)
    return SAMPLERS[name](candidates, seed)


def encode(configs: Sequence[SpecConfig]) -> NDArray[np.float64]:
    """Turn configurations into numbers, different ones into different rows.

    Columns: one a method (0 or 1); ``log2(1 + x)`` of depth, breadth (``topk``, or NGRAM's
    breadth), tokens (or the block size) and each further numeric option in use; whether NGRAM
    matches by ``PROB``. A knob that a method lacks is the mean over those that have it.

    Returns:
        Array of shape (configs, columns).
    """
    methods = sorted({method(config) for config in configs})
    one_hot = [[float(method(config) == name) for name in methods] for config in configs]
    merged = {"ngram_max_bfs_breadth", "block_size"}
    further = sorted(
        {
            name
            for config in configs
            for name, value in config.options
            if isinstance(value, int) and name not in merged
        }
    )
    numbers = [
        _logs([config.num_steps for config in configs]),
        _logs([_either(config.topk, config, "ngram_max_bfs_breadth") for config in configs]),
        _logs([_either(config.num_draft_tokens, config, "block_size") for config in configs]),
        *(_logs([config.option(name) for config in configs]) for name in further),
        [float(config.option("ngram_match_type") == "PROB") for config in configs],
    ]
    return np.hstack(
        [
            np.array(one_hot, dtype=np.float64).reshape(len(configs), len(methods)),
            np.array(numbers, dtype=np.float64).T,
        ]
    )


def _either(shape: int | None, config: SpecConfig, name: str) -> int | str | None:
    return config.option(name) if shape is None else shape


def _logs(values: Iterable[int | str | None]) -> list[float]:
    logs = [math.log2(1 + value) if isinstance(value, int) else math.nan for value in values]
    known = [value for value in logs if not math.isnan(value)]
    mean = sum(known) / len(known) if known else 0.0
    return [mean if math.isnan(value) else value for value in logs]
