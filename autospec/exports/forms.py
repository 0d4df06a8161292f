"""The forms of ``autospec export`` by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from autospec.exports.kubernetes import export_kubernetes
from autospec.exports.plan import Export
from autospec.exports.sglang import export_adaptive, export_args, export_env, export_json
from autospec.exports.tensorrt_llm import export_tensorrt_llm
from autospec.exports.vllm import export_vllm
from autospec.profile import Profile

__all__ = ["FORMS"]

FORMS: Final[dict[str, Callable[[Profile], Export]]] = {
    "args": export_args,
    "env": export_env,
    "json": export_json,
    "sglang-adaptive": export_adaptive,
    "vllm": export_vllm,
    "tensorrt-llm": export_tensorrt_llm,
    "k8s": export_kubernetes,
}
