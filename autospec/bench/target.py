"""What the user wants measured: a server by its address, or one to launch."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autospec.bench.request import LaunchSettings
from autospec.bench.result import Subject
from autospec.config import SpecConfig
from autospec.engine.address import checked_url
from autospec.engine.args import Deployment, extra_args, server_args
from autospec.engine.capabilities import detect, require_sglang
from autospec.engine.constraints import require_valid
from autospec.engine.extra import ARM_SETTINGS, is_secret, is_speculative
from autospec.engine.models import check_draft, read_model
from autospec.errors import ConfigError, InputError
from autospec.profile import load_profile
from autospec.tuning.deploy import fit_profile
from autospec.tuning.prepare import (
    admission_limit,
    describe_environment,
    memory_fraction,
    server_environment,
)

__all__ = ["Launch", "Running", "Target", "find_targets", "is_profile", "is_url"]

_PROFILE_SUFFIXES: Final = frozenset({".yaml", ".yml"})


#: Settings that a profile brings along, and that a running server has already.
_DEPLOYMENT: Final = (
    "device",
    "dtype",
    "tp_size",
    "max_running_requests",
    "mem_fraction_static",
    "context_length",
    "max_total_tokens",
    "attention_backend",
    "page_size",
)


@dataclass(frozen=True, slots=True)
class Running:
    """A server that someone else started.

    Attributes:
        url: its address.
        api_key: what it asks for; shown nowhere.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """What it is called in results."""
        return self.url


@dataclass(frozen=True, slots=True)
class Launch:
    """A server that is to be launched.

    Attributes:
        subject: what it will be; its settings are those asked for.
        arguments: keyword arguments of ``sglang.Engine``.
        variables: environment variables of its process.
        timeout_s: how long it may take to be ready.
        logs: folder where each launch leaves its log; None keeps none.
    """

    subject: Subject
    arguments: dict[str, Any]
    variables: dict[str, str]
    timeout_s: float
    logs: Path | None = None

    @property
    def name(self) -> str:
        """What it is called in results."""
        return self.subject.name


Target = Running | Launch


def is_url(text: str) -> bool:
    """Whether the text is an address, right or wrong."""
    return "://" in text


def is_profile(text: str) -> bool:
    """Whether the text is the path of a profile, there or not."""
    return Path(text).suffix.lower() in _PROFILE_SUFFIXES


def find_targets(
    texts: Sequence[str],
    settings: LaunchSettings,
    concurrencies: Iterable[int],
    api_key: str | None = None,
) -> tuple[Target, ...]:
    """Read what each text stands for.

    A configuration beside a profile is launched as the profile says, but for its speculation.

    Args:
        texts: addresses, paths of profiles, or configurations as text.
        settings: how to launch what has to be launched.
        concurrencies: loads that will be measured.
        api_key: for servers by address.

    Raises:
        InputError: a text that is none of these, or a setting that nothing would use.
        AutospecError: a profile or a model that cannot be used here.
    """
    launches: dict[str, Launch] = {}
    for text in texts:
        if is_profile(text) and text not in launches:
            launches[text] = _of_profile(text, settings)
    profile = next(iter(launches.values()), None)
    configs = [text for text in texts if not is_url(text) and not is_profile(text)]
    if profile is not None:
        _require_unset(settings, f"comes from {profile.name}")
        launches |= {text: _beside(profile, text) for text in configs}
    elif configs:
        launches |= _of_configs(configs, settings, concurrencies)
    else:
        _require_unset(settings, "is the running server's own")
    return tuple(
        Running(checked_url(text), api_key) if is_url(text) else launches[text] for text in texts
    )


def _require_unset(settings: LaunchSettings, why: str) -> None:
    default = LaunchSettings()
    for name in _DEPLOYMENT:
        value = getattr(settings, name)
        if value != getattr(default, name):
            raise InputError(f"--{name.replace('_', '-')} {value} cannot be given: it {why}")


def _of_profile(path: str, settings: LaunchSettings) -> Launch:
    profile = fit_profile(load_profile(path), model=settings.model, force=settings.force)
    extra = extra_args(settings.extra)
    secret = next((name for name in extra if is_secret(name)), None)
    if secret is not None:
        raise ConfigError(
            f"extra SGLang flags: --{secret.replace('_', '-')} is refused here, the server is "
            "reached by nobody else"
        )
    measured = profile.environment
    return _launch(
        path,
        profile.choice.config,
        {**profile.server_args(), **extra},
        settings,
        digest=profile.target.digest,
        draft_digest=profile.target.draft_digest,
        device=measured.device,
    )


def _beside(profile: Launch, text: str) -> Launch:
    """A configuration under the profile's deployment."""
    config, model = _parse_config(text), profile.subject.model
    arguments = {k: v for k, v in profile.arguments.items() if not is_speculative(k)}
    limits = {k: v for k, v in arguments.items() if k in ARM_SETTINGS}
    deployment = Deployment(model=model, device=str(arguments["device"]), **limits)
    require_valid(config, deployment, read_model(model))
    drafting = server_args(deployment, config)
    arguments |= {k: v for k, v in drafting.items() if is_speculative(k)}
    subject = dataclasses.replace(
        profile.subject,
        name=text,
        config=config,
        resolved=_scalars(arguments),
        draft_digest=_draft_digest(config, model),
    )
    return dataclasses.replace(profile, subject=subject, arguments=arguments)


def _of_configs(
    texts: Sequence[str], settings: LaunchSettings, concurrencies: Iterable[int]
) -> dict[str, Launch]:
    configs = {text: _parse_config(text) for text in texts}
    if settings.model is None:
        raise InputError(f"{texts[0]!r} is a configuration: give its model with --model, or --demo")
    require_sglang()
    device = detect(settings.device).device
    target = read_model(settings.model)
    deployment = Deployment(
        model=target.name,
        device=device,
        dtype=settings.dtype,
        tp_size=settings.tp_size,
        max_running_requests=admission_limit(settings.max_running_requests, concurrencies),
        mem_fraction_static=memory_fraction(settings.mem_fraction_static, device),
        context_length=settings.context_length,
        max_total_tokens=settings.max_total_tokens,
        attention_backend=settings.attention_backend,
        page_size=settings.page_size,
        random_seed=settings.seed,
        extra=settings.extra,
    )
    launches: dict[str, Launch] = {}
    for text, config in configs.items():
        require_valid(config, deployment, target)
        launches[text] = _launch(
            text,
            config,
            server_args(deployment, config),
            settings,
            digest=target.digest,
            draft_digest=_draft_digest(config, target.name),
            device=device,
        )
    return launches


def _launch(
    name: str,
    config: SpecConfig,
    arguments: dict[str, Any],
    settings: LaunchSettings,
    *,
    digest: str,
    draft_digest: str | None,
    device: str,
) -> Launch:
    dtype, tp_size = str(arguments.get("dtype", "auto")), int(arguments.get("tp_size", 1))
    subject = Subject(
        name=name,
        config=config,
        model=str(arguments["model_path"]),
        resolved=_scalars(arguments),
        digest=digest,
        draft_digest=draft_digest,
        environment=describe_environment(detect(device), dtype, tp_size),
    )
    return Launch(
        subject,
        arguments,
        server_environment(device),
        timeout_s=settings.launch_timeout_s,
        logs=settings.logs,
    )


def _parse_config(text: str) -> SpecConfig:
    word = text.partition(" ")[0]
    if not word.isidentifier() or not word.isupper():
        raise InputError(
            f"{text!r} is no profile (NAME.yaml), no address (http://host:port) and no "
            "configuration (PLAIN, 'NGRAM tokens=4 breadth=4')"
        )
    return SpecConfig.parse(text)


def _draft_digest(config: SpecConfig, model: str) -> str | None:
    if config.draft_model is None:
        return None
    draft = read_model(config.draft_model, role="draft model")
    check_draft(read_model(model), draft, config.algorithm)
    return draft.digest


def _scalars(arguments: dict[str, Any]) -> dict[str, int | float | str | bool | None]:
    return {
        name: value
        for name, value in arguments.items()
        if isinstance(value, int | float | str | bool)
    }
