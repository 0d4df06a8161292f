"""The form of a rule about what SGLang accepts, and what a rule looks at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from autospec.config import SpecConfig
from autospec.engine.args import Deployment
from autospec.engine.extra import extra_args
from autospec.engine.models import ModelInfo

__all__ = ["EAGLE_FAMILY", "TREE_FAMILY", "Case", "Rule", "tree_capacity"]

EAGLE_FAMILY: Final = frozenset({"EAGLE", "EAGLE3", "NEXTN"})
#: Methods that draft step by step with a model: steps, topk and draft tokens are all free.
TREE_FAMILY: Final = EAGLE_FAMILY | {"STANDALONE"}


@dataclass(frozen=True, slots=True)
class Case:
    """What a rule looks at; ``extra`` holds the deployment's pass-through flags as keywords."""

    config: SpecConfig
    deployment: Deployment
    target: ModelInfo | None = None
    extra: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", extra_args(self.deployment.extra))

    @property
    def algorithm(self) -> str:
        """The method's name."""
        return self.config.algorithm

    @property
    def device(self) -> str:
        """The kind of device, without its number."""
        return self.deployment.device.partition(":")[0]

    @property
    def backends(self) -> frozenset[str]:
        """Attention backends that are asked for; empty where SGLang chooses."""
        common = self.deployment.attention_backend
        phases = ("prefill_attention_backend", "decode_attention_backend")
        return frozenset(str(name) for key in phases if (name := self.extra.get(key, common)))

    @property
    def topk(self) -> int:
        """Branches a level: NGRAM takes its largest breadth for it."""
        if self.algorithm == "NGRAM":
            return self.number("ngram_max_bfs_breadth", 10)
        return self.config.topk or 1

    @property
    def attention_dp(self) -> bool:
        """Whether attention is split over data parallel ranks."""
        old = self.extra.get("enable_dp_attention") is True and self.flag("dp_size") > 1
        return old or self.flag("attn_dp_size") > 1

    def number(self, option: str, default: int) -> int:
        """A method's numeric option, or the default that SGLang would take."""
        value = self.config.option(option)
        return value if isinstance(value, int) else default

    def flag(self, name: str) -> int:
        """A numeric pass-through flag; 1 where it is not given or no number."""
        value = self.extra.get(name)
        return value if isinstance(value, int) else 1


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that SGLang does not accept.

    Attributes:
        name: how messages and tests call it.
        where: the file and function, or line of text, in SGLang 0.5.23 that refuses or crashes,
            below ``sglang/srt``.
        statement: what must hold, in one sentence.
        check: what is wrong with a case, or None.
    """

    name: str
    where: str
    statement: str
    check: Callable[[Case], str | None]


def tree_capacity(num_steps: int, topk: int) -> int:
    """Most tokens a verify step can hold, root included.

    The first level offers ``topk`` tokens and every later one ``topk`` for each of the ``topk``
    branches kept (``speculative/eagle_utils.py:107``).
    """
    return 1 + topk + (num_steps - 1) * topk**2 if num_steps else 1
