"""``autospec doctor``: all checks, in the order in which a study would meet them."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterator
from dataclasses import dataclass

from autospec.config import SpecConfig
from autospec.doctor.configuration import Asked, check_configuration
from autospec.doctor.finding import Checkup, Finding, blocks, fine
from autospec.doctor.machine import check_device, check_room, check_servers
from autospec.doctor.models import read_models
from autospec.doctor.software import check_software
from autospec.engine.args import Deployment
from autospec.engine.capabilities import Platform, detect
from autospec.errors import AutospecError
from autospec.profile import Profile
from autospec.tune.space import SearchSpace
from autospec.tuning.deploy import fit_profile
from autospec.tuning.prepare import admission_limit

__all__ = ["Question", "examine"]

_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the doctor is asked about; nothing of it need be given.

    Attributes:
        model: folder or repository of the target.
        profile: in place of a model, whose configuration is then looked at.
        drafts: (algorithm, draft model) pairs.
        algorithms: methods; empty for NGRAM and every method with a draft.
        config: one configuration in place of a search.
        device: ``cuda``, ``cpu``, ...; None to look.
        tp_size: GPUs the target is spread over.
        port: the port to serve on; None for any.
        extra: SGLang flags passed through.
    """

    model: str | None = None
    profile: Profile | None = None
    drafts: tuple[tuple[str, str], ...] = ()
    algorithms: tuple[str, ...] = ()
    config: SpecConfig | None = None
    device: str | None = None
    tp_size: int = 1
    port: int | None = None
    extra: tuple[str, ...] = ()


def examine(question: Question) -> Checkup:
    """Look at everything; what is wrong becomes a finding and never an error.

    Raises:
        ConfigError: the question itself makes no sense.
    """
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return Checkup(checked=now, findings=tuple(_findings(question)))


def _findings(question: Question) -> Iterator[Finding]:
    profile = question.profile
    config = profile.choice.config if profile is not None else question.config
    drafts = question.drafts
    if config is not None and config.draft_model is not None:
        drafts = ((config.algorithm, config.draft_model),)
    model = profile.target.model if profile is not None else question.model
    platform = detect(question.device or (profile.environment.device if profile else None))
    models = read_models(model, drafts)
    yield from check_software(platform, os.environ)
    yield from check_device(platform)
    yield from check_room(platform, models.weights_gib, question.tp_size)
    yield from models.findings
    if profile is not None:
        yield _fits(profile)
    if model is not None:
        asked = _asked(question, platform, models.target.name if models.target else model, config)
        yield from check_configuration(asked, models.target)
    yield from check_servers(_HOST, question.port)


def _asked(question: Question, platform: Platform, model: str, config: SpecConfig | None) -> Asked:
    deployment = Deployment(
        model=model,
        device=platform.device,
        tp_size=question.tp_size,
        max_running_requests=admission_limit(None, ()),
        extra=question.extra,
    )
    space = SearchSpace() if config else SearchSpace(question.algorithms, question.drafts)
    return Asked(deployment, config, space)


def _fits(profile: Profile) -> Finding:
    try:
        fit_profile(profile)
    except AutospecError as error:
        return blocks("profile", str(error), "tune again here, or serve it with --force")
    return fine("profile", f"measured on this machine, {profile.provenance.created}")
