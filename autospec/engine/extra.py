"""SGLang flags that the user passes through, and which of them autospec refuses."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from autospec.errors import ConfigError

__all__ = ["ARM_SETTINGS", "extra_args", "is_secret", "is_speculative"]

#: Other spellings that SGLang takes for a flag, and the keyword that both stand for.
_ALIASES: Final = {
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "attention_data_parallel_size": "attn_dp_size",
    "attention_context_parallel_size": "attn_cp_size",
    "decode_context_parallel_size": "dcp_size",
    "expert_parallel_size": "ep_size",
    "ep": "ep_size",
    "moe_data_parallel_size": "moe_dp_size",
    "nccl_init_addr": "dist_init_addr",
    "enable_hicache": "enable_hierarchical_cache",
    "fp8_gemm_backend": "fp8_gemm_runner_backend",
    "fp4_gemm_backend": "fp4_gemm_runner_backend",
}

#: What a deployment sets alike in every arm, beside the model and the device.
ARM_SETTINGS: Final = (
    "dtype",
    "tp_size",
    "max_running_requests",
    "mem_fraction_static",
    "max_total_tokens",
    "context_length",
    "attention_backend",
    "page_size",
    "random_seed",
)

#: Keywords that autospec sets itself in any spelling, and those that would hide a setting from it.
_OWN: Final = (
    "model_path",
    "device",
    *ARM_SETTINGS,
    "tensor_parallel_size",
    "host",
    "port",
    "uno_lora_path",
    "config",
    "help",
)

#: Keywords whose values are secrets.
_SECRET: Final = ("api_key", "admin_api_key", "ssl_keyfile_password")

_FLAG = re.compile(r"--([a-z0-9]+(?:-[a-z0-9]+)*)(?:=(.*))?", re.DOTALL)


def extra_args(extra: Sequence[str]) -> dict[str, Any]:
    """Read pass-through flags as keyword arguments.

    A flag alone is ``True``, one value is a scalar, several are a list. Text becomes a number only
    where writing the number gives the same text again. ``--no-X`` stays a keyword ``no_X``, which a
    command line understands and ``sglang.Engine`` does not.

    Raises:
        ConfigError: a value without its flag, a flag twice, or one that autospec refuses.
    """
    given: dict[str, list[str]] = {}
    name = ""
    for word in extra:
        match = _FLAG.fullmatch(word)
        if match is None:
            if not name or word.startswith("--"):
                raise ConfigError(f"extra SGLang flags: {word!r} is not a flag like --name")
            given[name].append(word)
            continue
        name = _keyword(match[1])
        if name in given:
            raise ConfigError(f"extra SGLang flags: --{match[1]} is given twice")
        given[name] = [] if match[2] is None else [match[2]]
    return {name: _value(words) for name, words in given.items()}


def is_secret(name: str) -> bool:
    """Whether a keyword's value must not be stored; SGLang takes a flag's first letters too."""
    return len(name) > 2 and any(secret.startswith(name) for secret in _SECRET)


def is_speculative(name: str) -> bool:
    """Whether a server argument belongs to speculation."""
    return name.startswith("speculative_") or name == "uno_lora_path"


def _keyword(flag: str) -> str:
    name = flag.replace("-", "_")
    # SGLang's parser also takes a flag's first letters for the whole of it.
    refused = any(own.startswith(name) for own in (*_OWN, "speculative_"))
    if refused or is_speculative(name.removeprefix("no_")):
        raise ConfigError(
            f"extra SGLang flags: --{flag} is refused, since autospec sets it itself "
            "and every arm must get the same"
        )
    return _ALIASES.get(name, name)


def _value(words: list[str]) -> Any:
    if not words:
        return True
    values = [_scalar(word) for word in words]
    return values[0] if len(values) == 1 else values


def _scalar(word: str) -> int | float | str:
    for kind in (int, float):
        try:
            number = kind(word)
        except ValueError:
            continue
        if str(number) == word and math.isfinite(number):
            return number
    return word
