"""From a profile to a server: does it belong here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from autospec.engine.capabilities import detect, require_sglang
from autospec.engine.models import read_model
from autospec.errors import MismatchError
from autospec.profile import Profile
from autospec.tuning.corpus import check_corpus
from autospec.tuning.places import put_in_place
from autospec.tuning.prepare import describe_environment

__all__ = ["fit_profile"]


def fit_profile(
    profile: Profile,
    *,
    model: str | None = None,
    force: bool = False,
    notify: Callable[[str], object] = lambda _line: None,
) -> Profile:
    """The profile for this machine, refused where it was not measured for it.

    Args:
        profile: as loaded.
        model: where its model lies here, if not where it was measured.
        force: skip the comparison.
        notify: is told what is going on while a model of the demo is fetched.

    Raises:
        EngineMissingError: SGLang is not installed here.
        DemoError: it names a model of the demo that cannot be had.
        ModelError: the model, or the draft model it deploys, cannot be read.
        ConfigError: the n-gram corpus it deploys cannot be read.
        MismatchError: naming the first field that differs.
    """
    if model is not None:
        profile = profile.with_model(model)
    profile = put_in_place(profile, notify)
    if force:
        return profile
    require_sglang()
    measured = profile.environment
    here = describe_environment(detect(measured.device), measured.dtype, measured.tp_size)
    profile.require_match(read_model(profile.target.model).digest, here)
    config, target = profile.choice.config, profile.target
    if config.draft_model is not None:
        digest = read_model(config.draft_model, role="draft model").digest
        _require_same("draft", config.draft_model, target.draft_digest, digest)
    if config.corpus is not None:
        _require_same(
            "corpus", config.corpus, target.corpus_digest, check_corpus(Path(config.corpus))
        )
    return profile


def _require_same(what: str, path: str, measured: str | None, here: str) -> None:
    if measured != here:
        raise MismatchError(
            f"the profile was measured with {what} digest {measured!r}, {path} has {here!r}; "
            "tune again, or use --force"
        )
