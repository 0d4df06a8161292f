"""The target and its draft models: readable, fitting, and small enough to pay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from autospec.doctor.finding import Finding, blocks, fine, warns
from autospec.engine.models import ModelInfo, check_draft, read_model, weights_gib
from autospec.errors import ModelError

__all__ = ["Models", "read_models"]

#: Size of a draft model, as a share of the target's, from which drafting can hardly pay.
_HEAVY: Final = 0.5


@dataclass(frozen=True, slots=True)
class Models:
    """What was found of the models.

    Attributes:
        findings: one or more a model.
        target: None where it could not be read, or none was asked about.
        weights_gib: of all models whose files lie here.
    """

    findings: tuple[Finding, ...]
    target: ModelInfo | None
    weights_gib: float


def read_models(model: str | None, drafts: Sequence[tuple[str, str]]) -> Models:
    """Read the models and compare each draft model with the target.

    Args:
        model: folder or repository of the target; None where none was asked about.
        drafts: method and draft model.
    """
    if model is None:
        return Models((), None, 0.0)
    try:
        target = read_model(model)
    except ModelError as error:
        fix = "give a folder with config.json and weights, or a repository that can be fetched"
        return Models((blocks("target", str(error), fix),), None, 0.0)
    size = weights_gib(target)
    findings = [fine("target", _shown(target, size))]
    heaviest = 0.0
    for algorithm, path in drafts:
        try:
            draft = read_model(path, role="draft model")
            check_draft(target, draft, algorithm)
        except ModelError as error:
            fix = f"a draft model made for {target.architecture} with this vocabulary"
            findings.append(blocks(f"{algorithm} draft", str(error), fix))
            continue
        findings += _compare(algorithm, draft, size)
        heaviest = max(heaviest, weights_gib(draft))
    return Models(tuple(findings), target, size + heaviest)


def _compare(algorithm: str, draft: ModelInfo, target_gib: float) -> Iterator[Finding]:
    subject, size = f"{algorithm} draft", weights_gib(draft)
    eagle3 = "eagle3" in draft.architecture.lower()
    if algorithm == "EAGLE3" and not eagle3:
        yield warns(
            subject,
            f"{draft.name} is a {draft.architecture}, which does not look like an EAGLE-3 head",
            "another draft model, or --draft with the method that this one was made for",
        )
    if algorithm in ("EAGLE", "STANDALONE") and eagle3:
        yield warns(
            subject,
            f"{draft.name} is an EAGLE-3 head ({draft.architecture})",
            f"--draft EAGLE3={draft.name}",
        )
    if target_gib and size > _HEAVY * target_gib:
        yield warns(
            subject,
            f"{draft.name} has {size / target_gib:.0%} of the target's size: each drafted token "
            "costs nearly as much as a real one",
            "a smaller draft model",
        )
    yield fine(subject, _shown(draft, size))


def _shown(model: ModelInfo, size_gib: float) -> str:
    size = f"{size_gib:.2g} GiB of weights" if size_gib else "weights not fetched yet"
    return f"{model.name}: {model.architecture}, {model.vocab_size} tokens, {size}"
