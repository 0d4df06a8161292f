"""Whether two servers may be put side by side, and in what they differ. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from autospec.bench.result import Resolved, Subject
from autospec.engine.args import differences
from autospec.errors import MismatchError

__all__ = ["Fairness", "check_fairness"]

#: Settings in which a difference decides the comparison beside what is compared.
_SETTINGS: Final = (
    "device",
    "dtype",
    "quantization",
    "tp_size",
    "max_running_requests",
    "context_length",
)
#: What must agree of two machines, where both are known.
_MACHINE: Final = ("accelerator", "accelerator_count", "cpu_threads", "cpu_kernels")


@dataclass(frozen=True, slots=True)
class Fairness:
    """Differences between two servers, one line each.

    Attributes:
        unfair: those that make the comparison unfair; only ever there by force.
        differs: the others.
    """

    unfair: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


def check_fairness(a: Subject, b: Subject, *, force: bool = False) -> Fairness:
    """Compare models, machines, limits and resolved settings.

    Args:
        a: the first arm.
        b: the second arm.
        force: note what is unfair instead of refusing it.

    Raises:
        MismatchError: naming the first field that makes the comparison unfair, and both values.
    """
    unfair = _unfair(a, b)
    if unfair and not force:
        name, (mine, other) = next(iter(unfair.items()))
        raise MismatchError(
            f"the comparison would be unfair: {name} is {mine!r} for {a.name} and {other!r} for "
            f"{b.name}; make them the same, or use --force"
        )
    named = tuple(f"{name}: {mine} / {other}" for name, (mine, other) in unfair.items())
    others = (line for line in differences(a.resolved, b.resolved) if _name(line) not in unfair)
    return Fairness(named, (*_versions(a.resolved, b.resolved), *others))


def _unfair(a: Subject, b: Subject) -> dict[str, tuple[Any, Any]]:
    pairs: dict[str, tuple[Any, Any]] = {}
    if a.digest is not None and b.digest is not None:
        pairs["model digest"] = (a.digest, b.digest)
    else:
        pairs["model path"] = (a.model, b.model)
    if a.environment is not None and b.environment is not None:
        pairs |= {
            name: (getattr(a.environment, name), getattr(b.environment, name)) for name in _MACHINE
        }
    pairs |= {name: (a.resolved.get(name), b.resolved.get(name)) for name in _SETTINGS}
    return {name: values for name, values in pairs.items() if values[0] != values[1]}


def _versions(a: Resolved, b: Resolved) -> tuple[str, ...]:
    mine, other = a.get("version"), b.get("version")
    return () if mine == other else (f"sglang: {mine} / {other}",)


def _name(line: str) -> str:
    return line.partition(":")[0]
