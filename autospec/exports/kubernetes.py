"""Kubernetes: the part of a Pod that runs the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autospec.errors import ConfigError
from autospec.exports.plan import Export, commented
from autospec.exports.sglang import export_args
from autospec.profile import Profile
from autospec.schema import yaml_text

__all__ = ["export_kubernetes"]

_PORT = 30000


def export_kubernetes(profile: Profile) -> Export:
    """A container and its volumes, to be put into a Pod's or a Deployment's ``spec``.

    Readiness is asked of ``/ready``, which costs the engine nothing; ``/health`` generates a token
    on an idle server, so it is asked seldom.

    Raises:
        ConfigError: the profile is not for a GPU.
    """
    environment = profile.environment
    if environment.device != "cuda":
        raise ConfigError(
            f"the snippet is for GPUs, the profile is for {environment.device}: put autospec and "
            "the profile into an image and run autospec serve PROFILE"
        )
    container = {
        "name": "sglang",
        "image": f"lmsysorg/sglang:v{environment.sglang}",
        "command": ["python3", "-m", "sglang.launch_server"],
        "args": [*profile.to_argv(), "--host", "0.0.0.0", "--port", str(_PORT)],  # noqa: S104 -- a Pod's own address
        "ports": [{"name": "http", "containerPort": _PORT}],
        "resources": {"limits": {"nvidia.com/gpu": environment.tp_size}},
        "startupProbe": _probe("/ready", period_s=10, failures=120),
        "readinessProbe": _probe("/ready", period_s=5, failures=2),
        "livenessProbe": _probe("/health", period_s=60, failures=3),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 -- where it is
    }
    document = {
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    notes = _notes(profile)
    return Export(commented(list(notes), yaml_text(document)), notes)


def _probe(path: str, *, period_s: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": _PORT},
        "periodSeconds": period_s,
        "timeoutSeconds": 30,
        "failureThreshold": failures,
    }


def _notes(profile: Profile) -> tuple[str, ...]:
    environment = profile.environment
    models = [profile.target.model, profile.choice.config.draft_model]
    folders = [model for model in models if model and Path(model).is_absolute()]
    notes = [
        f"measured on {environment.accelerator}: choose nodes with it, the snippet does not",
        "the image's tag names SGLang's version, not CUDA's: take the one for your driver",
        *export_args(profile).notes,
    ]
    if folders:
        notes.append(f"mount the models' folders at the same paths: {', '.join(folders)}")
    return tuple(notes)
