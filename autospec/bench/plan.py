"""What is sent to every server: the prompts and the loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from autospec.bench.request import Traffic
from autospec.errors import InputError
from autospec.evidence import WorkloadSummary
from autospec.measure.harness import PassPlan
from autospec.measure.load import Arrival, ClosedLoop, Poisson
from autospec.measure.split import Parts, split
from autospec.measure.workload import read_workload
from autospec.measurement import Run, Sampling

__all__ = ["PART", "Plan", "load_name", "load_of", "make_plan"]

#: The prompts that are sent: those that ``autospec tune`` does not search on.
PART: Final = "confirm"


@dataclass(frozen=True, slots=True)
class Plan:
    """The same, read and split.

    Attributes:
        traffic: what was asked for.
        parts: the prompts.
        passes: loads and size of the passes.
        loads: all loads, in the order in which they are made.
    """

    traffic: Traffic
    parts: Parts
    passes: PassPlan
    loads: tuple[Arrival, ...]

    def summary(self) -> WorkloadSummary:
        """The workload without any text of it."""
        workload = self.parts.workload
        counts: dict[str, int] = {}
        for prompt in workload.prompts:
            if prompt.label is not None:
                counts[prompt.label] = counts.get(prompt.label, 0) + 1
        parts = (self.parts.warmup, self.parts.named(PART))
        return WorkloadSummary(
            name=workload.name,
            fingerprint=workload.fingerprint,
            prompts={part.name: len(part.prompts) for part in parts},
            classes=dict(sorted(counts.items())),
            concurrencies=self.traffic.concurrencies,
            temperature=workload.sampling.temperature,
        )


def make_plan(traffic: Traffic) -> Plan:
    """Read and split the prompts.

    Raises:
        WorkloadError: the prompts cannot be used, or are too few.
        InputError: a load or a number that cannot be.
    """
    if not traffic.concurrencies and not traffic.request_rates:
        raise InputError("there is no load, must be at least one concurrency or request rate")
    workload = read_workload(
        Path(traffic.prompts) if traffic.prompts != "-" else "-",
        default_max_new_tokens=traffic.max_new_tokens,
        sampling=Sampling(temperature=traffic.temperature),
    )
    passes = PassPlan(
        traffic.concurrencies,
        requests_per_pass=traffic.requests_per_pass,
        request_rates=traffic.request_rates,
    )
    return Plan(
        traffic=traffic,
        parts=split(workload, traffic.seed, max_concurrency=passes.max_concurrency),
        passes=passes,
        loads=(*map(ClosedLoop, traffic.concurrencies), *map(Poisson, traffic.request_rates)),
    )


def load_name(load: Arrival) -> str:
    """A load in a few letters: ``8`` requests in flight, ``2.5/s`` arriving."""
    return str(load.concurrency) if isinstance(load, ClosedLoop) else f"{load.rate_per_s:g}/s"


def load_of(run: Run) -> str:
    """The name of the load of a pass."""
    return str(run.concurrency) if run.request_rate is None else f"{run.request_rate:g}/s"
