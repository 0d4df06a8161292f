"""Seeded traces in which a policy must hold its ground: for tests and benchmarks. Simulated.

A world is a load with a story (``WORLDS``), on a model with step times (``TABLES``). A seed draws
the model, the batch size and how acceptance falls with the draft's position, so that one policy
meets many models. Acceptance is set by what it is worth there: a *worth* of 1.1 is the acceptance
at which the best depth makes 1.1x of plain decoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autospec.control.costs import Costs
from autospec.control.trace import Step, Trace
from autospec.errors import ConfigError

__all__ = ["BATCH_SIZES", "TABLES", "WORLDS", "Model", "World", "draw_model", "make_world"]

Array = NDArray[np.float64]

#: Batch sizes that tables have times for.
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
#: Steps of a phase, of a burst, of a stage of the ramp, and of a long stationary world.
PHASE, BURST, STAGE, LONG = 2000, 400, 500, 10_000
#: Mean steps of a request where requests of several classes are served.
REQUEST = 150
#: The smallest batch that holds both classes.
MIXED_BATCH = 8
#: What acceptance is worth where it is high and where it is low; and the least rate that is high.
HIGH, LOW, HIGH_RATE = 1.6, 0.8, 0.75


def _table(
    depths: Sequence[int],
    *,
    draft: float,
    token: float,
    fixed: float = 0.0,
    knee: float = np.inf,
    beyond: float = 0.0,
) -> Costs:
    """Step times in ms.

    Args:
        depths: drafting depths.
        draft: of one draft step.
        token: of each verified token.
        fixed: of speculating at all.
        knee: verified tokens from which on computing takes over from memory.
        beyond: of each token beyond the knee, besides.
    """

    def time(depth: int, batch: int) -> float:
        tokens = batch * (depth + 1)
        time = 10 + 0.05 * batch + token * tokens + depth * draft + (fixed if depth else 0)
        return time + (beyond * (tokens - knee) if tokens > knee else 0)

    return Costs({depth: {batch: time(depth, batch) for batch in BATCH_SIZES} for depth in depths})


#: Models by what is particular about their step times.
TABLES = {
    "cheap drafts": _table(range(6), draft=0.35, token=0.01, fixed=0.5),
    "dear drafts": _table(range(6), draft=2.0, token=0.02, fixed=1.0),
    "compute bound": _table((0, 1, 3, 5, 7), draft=0.5, token=0.05, knee=64, beyond=0.12),
    "n-grams": _table((0, 7), draft=0.0, token=0.12, fixed=1.5),
    "long blocks": _table((0, 1, 3, 7, 15), draft=0.1, token=0.03, fixed=3.0),
}


@dataclass(frozen=True, slots=True)
class Model:
    """A model at a load.

    Attributes:
        costs: its step times.
        batch_size: requests in a step, where the world does not say otherwise.
        decay: by which the rate at each position falls below the one before.
    """

    costs: Costs
    batch_size: int = 8
    decay: float = 1.0

    @property
    def depth(self) -> int:
        """The deepest that it drafts."""
        return self.costs.depths[-1]

    def worth(self, rate: float, batch_size: int) -> float:
        """What the best depth makes of plain decoding's throughput at a rate of the first draft."""
        survival, length, best = 1.0, 1.0, 0.0
        for position in range(self.depth):
            survival *= rate * self.decay**position
            length += survival
            if position + 1 in self.costs.depths:
                best = max(best, length / self.costs.break_even(position + 1, batch_size))
        return best

    def rate(self, worth: float, batch_size: int | None = None) -> float:
        """The rate of the first draft that is worth so much, between 0.02 and 0.98."""
        low, high = 0.02, 0.98
        for _ in range(40):
            middle = (low + high) / 2
            if self.worth(middle, batch_size or self.batch_size) < worth:
                low = middle
            else:
                high = middle
        return low

    @property
    def high(self) -> float:
        """A rate at which speculation pays well."""
        return max(self.rate(HIGH), HIGH_RATE)

    @property
    def low(self) -> float:
        """A rate at which it costs, as far as one can at this model."""
        return self.rate(LOW)


@dataclass(frozen=True, slots=True)
class World:
    """A trace and the model it belongs to.

    Attributes:
        name: of the story.
        changing: whether there is something to adapt to.
    """

    name: str
    model: Model
    trace: Trace
    changing: bool


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Steps of one phase with one batch size: the rate of each request's first draft, by step."""

    phase: str
    rates: Array


_Story = Callable[[Model, np.random.Generator], Iterator[_Stretch]]


def draw_model(seed: int) -> Model:
    """The model of a seed: all tables in turn, batch sizes from 2 to 16."""
    rng = np.random.default_rng([seed, 1])
    costs = list(TABLES.values())[seed % len(TABLES)]
    return Model(costs, int(rng.choice([2, 4, 8, 16])), float(rng.choice([1.0, 0.97, 0.9])))


def make_world(name: str, seed: int, model: Model | None = None) -> World:
    """A world.

    Args:
        name: a key of ``WORLDS``.
        seed: the same seed gives the same world.
        model: the seed's own by default.

    Raises:
        ConfigError: there is no such world.
    """
    if name not in WORLDS:
        raise ConfigError(f"world {name!r} is none of {', '.join(WORLDS)}")
    model = model or draw_model(seed)
    rng = np.random.default_rng([seed, 2])
    steps: list[Step] = []
    clock_ms = 0.0
    for stretch in WORLDS[name](model, rng):
        time = model.costs.time_ms(model.depth, stretch.rates.shape[1])
        for row in _draw(stretch.rates, model, rng).tolist():
            steps.append(Step(round(clock_ms / 1000, 6), tuple(row), stretch.phase))
            clock_ms += time
    trace = Trace("EAGLE3", model.depth, 1, tuple(steps))
    return World(name, model, trace, changing=name in CHANGING)


def _draw(rates: Array, model: Model, rng: np.random.Generator) -> NDArray[np.int64]:
    """Correct drafts of each request in each step."""
    by_position = rates[..., None] * model.decay ** np.arange(model.depth)
    right = rng.random(by_position.shape, dtype=np.float32) < by_position
    correct: NDArray[np.int64] = np.cumprod(right, axis=-1, dtype=np.int64).sum(axis=-1)
    return correct


def _flat(model: Model, phase: str, rate: float | Array, steps: int) -> _Stretch:
    rates = np.broadcast_to(np.asarray(rate, dtype=np.float64), (steps,))
    return _Stretch(phase, np.repeat(rates[:, None], model.batch_size, axis=1))


def _stationary_high(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """Speculation pays well, always."""
    del rng
    yield _flat(model, "high", model.high, 3 * PHASE)


def _stationary_low(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """Speculation never pays."""
    del rng
    yield _flat(model, "low", model.low, 3 * PHASE)


def _stationary_marginal(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """The best depth makes 1.1x of plain decoding, always: falling back is false."""
    del rng
    yield _flat(model, "marginal", model.rate(1.1), LONG)


def _collapse(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """High, then suddenly low, then suddenly high again, twice."""
    del rng
    for number in range(4):
        phase, rate = ("low", model.low) if number % 2 else ("high", model.high)
        yield _flat(model, f"{phase} {number // 2 + 1}", rate, PHASE)


def _drift(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """Slowly from high to low and back."""
    del rng
    course = (1 + np.cos(np.linspace(0, 2 * np.pi, 4 * PHASE))) / 2
    rates = model.low + (model.high - model.low) * course
    for number, part in enumerate(np.split(rates, 4)):
        yield _flat(model, ("falling", "low", "rising", "high")[number], part, PHASE)


def _ramp(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """The same requests in batches of 1 to 64 and back to 1."""
    del rng
    rate = min(max(model.rate(1.05, 16), 0.55), 0.85)
    for number, batch in enumerate((*BATCH_SIZES, *reversed(BATCH_SIZES[:-1]))):
        direction = "up" if number < len(BATCH_SIZES) else "down"
        yield _Stretch(f"{direction} {batch}", np.full((STAGE, batch), rate))


def _break_even(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """Wanders about break-even, at most a few hundredths off."""
    level = model.rate(1.0)
    wander = np.zeros(3 * PHASE)
    for step in range(1, len(wander)):
        wander[step] = 0.995 * wander[step - 1] + rng.normal(0, 0.003)
    for number, part in enumerate(np.split(level * (1 + wander), 3)):
        yield _flat(model, f"near {number + 1}", np.clip(part, 0, 0.98), PHASE)


def _mixed(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """Requests of two classes, one high and one low, come and go in a batch that holds both."""
    levels = np.array([model.low, model.high])
    batch = max(model.batch_size, MIXED_BATCH)
    classes = (rng.random(batch) < 0.5).astype(int)
    for number, share in enumerate((0.2, 0.8, 0.2, 0.8)):
        rates = np.empty((PHASE, batch))
        for step in range(PHASE):
            fresh = rng.random(batch) < 1 / REQUEST
            drawn = (rng.random(batch) < share).astype(int)
            classes = np.where(fresh, drawn, classes)
            rates[step] = levels[classes]
        yield _Stretch(f"{share:.0%} high {number // 2 + 1}", rates)


def _bursts(model: Model, rng: np.random.Generator) -> Iterator[_Stretch]:
    """High and low in turns of 400 steps."""
    del rng
    for number in range(4 * PHASE // BURST):
        phase, rate = ("low", model.low) if number % 2 else ("high", model.high)
        yield _flat(model, f"{phase} {number // 2 + 1}", rate, BURST)


#: Every world by its name.
WORLDS: dict[str, _Story] = {
    "stationary high": _stationary_high,
    "stationary low": _stationary_low,
    "stationary marginal": _stationary_marginal,
    "collapse": _collapse,
    "drift": _drift,
    "ramp": _ramp,
    "break-even": _break_even,
    "mixed": _mixed,
    "bursts": _bursts,
}
#: Those in which there is something to adapt to.
CHANGING = frozenset({"collapse", "drift", "ramp", "mixed", "bursts"})
