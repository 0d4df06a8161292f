"""What was asked for: the engine's rules, and its known faults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from autospec.config import SpecConfig
from autospec.doctor.finding import Finding, blocks, fine, warns
from autospec.engine.args import Deployment
from autospec.engine.constraints import violations
from autospec.engine.known_bugs import CHECKED, KnownBug, known_bugs
from autospec.engine.models import ModelInfo
from autospec.engine.rules import Case
from autospec.tune.space import SearchSpace, enumerate_space

__all__ = ["Asked", "check_configuration"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be run.

    Attributes:
        deployment: what serves.
        config: the one configuration, or None.
        space: what a search would try, where no one configuration is named.
    """

    deployment: Deployment
    config: SpecConfig | None
    space: SearchSpace


def check_configuration(asked: Asked, target: ModelInfo | None) -> Iterator[Finding]:
    """Which rules are broken, and which known faults the configurations can meet."""
    if asked.config is not None:
        broken = violations(asked.config, asked.deployment, target)
        for text in broken:
            yield blocks("configuration", text, "change the configuration or the flag it names")
        if not broken:
            yield fine("configuration", f"{asked.config.label} breaks no rule of SGLang")
        yield from _bugs((asked.config,), asked.deployment, target)
        return
    listed = enumerate_space(
        asked.space, partial(violations, deployment=asked.deployment, target=target)
    )
    for method in asked.space.searched:
        count = sum(config.algorithm == method for config in listed.candidates)
        if count:
            yield fine("configuration", f"{method}: {count} configurations break no rule")
            continue
        reasons = [reason for config, reason in listed.refused if config.algorithm == method]
        yield blocks(
            "configuration",
            f"{method}: none of {len(reasons)} configurations can run; {reasons[0]}",
            f"leave {method} out with --algorithm, or change the flag it names",
        )
    yield from _bugs(listed.candidates, asked.deployment, target)


def _bugs(
    configs: tuple[SpecConfig, ...], deployment: Deployment, target: ModelInfo | None
) -> Iterator[Finding]:
    found: dict[str, tuple[KnownBug, set[str]]] = {}
    for config in configs:
        for bug in known_bugs(Case(config, deployment, target)):
            found.setdefault(bug.name, (bug, set()))[1].add(config.algorithm)
    for bug, methods in found.values():
        text = f"{', '.join(sorted(methods))}: {bug.says} ({bug.reported})"
        yield warns("known fault", text, bug.fix, bug.link)
    if not found:
        yield fine("known faults", f"none of the list of {CHECKED} touches what is asked for")
