"""How the drafter learns."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how fast.

    Attributes:
        steps: updates, with a cosine from ``rate`` down to a twentieth of it.
        batch: answers an update.
        rate: of the layers; the embedding learns at a third of it.
        save_every: updates between two checkpoints and held-out figures.
        seed: of the weights and of the order.
    """

    steps: int = 400
    batch: int = 32
    rate: float = 3e-3
    save_every: int = 40
    seed: int = 0
