"""What a server is started with: a deployment and a speculative configuration as SGLang's flags.

Names are those of SGLang 0.5.23's ``ServerArgs`` (``srt/arg_groups/fields``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from autospec.argv import to_argv
from autospec.config import OPTION_WORDS, PLAIN, SpecConfig
from autospec.engine.extra import ARM_SETTINGS, extra_args, is_secret, is_speculative
from autospec.errors import ConfigError

__all__ = [
    "RESOLVED_KEYS",
    "Deployment",
    "adjusted",
    "config_of",
    "differences",
    "extra_args",
    "server_args",
    "to_argv",
]

#: Resolved settings that are stored with a measurement and shown where two arms differ.
RESOLVED_KEYS: Final = (
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "tp_size",
    "pp_size",
    "dp_size",
    "context_length",
    "max_running_requests",
    "mem_fraction_static",
    "max_total_tokens",
    "max_total_num_tokens",
    "attention_backend",
    "prefill_attention_backend",
    "decode_attention_backend",
    "sampling_backend",
    "page_size",
    "cuda_graph_config",
    "decode_cuda_graph_bs",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "schedule_policy",
    "schedule_conservativeness",
    "disable_overlap_schedule",
    "disable_radix_cache",
    "enable_mixed_chunk",
    "enable_torch_compile",
    "random_seed",
    "speculative_algorithm",
    "speculative_draft_model_path",
    "speculative_num_steps",
    "speculative_eagle_topk",
    "speculative_num_draft_tokens",
    "speculative_attention_mode",
    "speculative_draft_attention_backend",
    "speculative_use_rejection_sampling",
    "speculative_accept_threshold_single",
    "speculative_accept_threshold_acc",
    "speculative_adaptive",
    "speculative_ngram_min_bfs_breadth",
    "speculative_ngram_max_bfs_breadth",
    "speculative_ngram_match_type",
    "speculative_ngram_max_trie_depth",
    "speculative_ngram_capacity",
    "speculative_ngram_external_corpus_path",
    "speculative_ngram_external_sam_budget",
    "speculative_dflash_block_size",
    "speculative_dspark_block_size",
    "uno_lora_path",
)

_SHAPE: Final = {
    "num_steps": "speculative_num_steps",
    "topk": "speculative_eagle_topk",
    "num_draft_tokens": "speculative_num_draft_tokens",
}
#: Methods whose depth and branching SGLang derives; what a server reports there was not asked for.
_DERIVED_SHAPE: Final = frozenset({"NGRAM", "DFLASH", "DSPARK"})
_BLOCK_KEYS: Final = {
    "DFLASH": "speculative_dflash_block_size",
    "DSPARK": "speculative_dspark_block_size",
}
_LEAST: Final = {
    "tp_size": 1,
    "max_running_requests": 1,
    "max_total_tokens": 1,
    "context_length": 1,
    "page_size": 1,
    "random_seed": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Everything about a server except speculation; the same in every arm.

    Attributes:
        model: folder or repository of the target model.
        device: ``cuda``, ``cpu``, ``xpu``, ``npu``, ...
        dtype: SGLang's name of the number type; ``auto`` takes the checkpoint's.
        tp_size: tensor parallel size.
        max_running_requests: admission limit. Always given, since SGLang lowers it to 48 when it
            speculates and takes thousands when it does not.
        mem_fraction_static: share of device memory for weights and KV cache; None leaves it to
            SGLang.
        max_total_tokens: KV cache size in tokens; None derives it from the memory fraction.
        context_length: longest prompt and answer in tokens; None takes the model's.
        attention_backend: None leaves each arm its own best one.
        page_size: tokens a page of the KV cache; None leaves it to SGLang.
        random_seed: the server's seed.
        extra: SGLang flags that the user passes through, as on a command line.

    Raises:
        ConfigError: a number out of its range, or an extra flag that is malformed, given twice, or
            would make the arms differ in what autospec compares.
    """

    model: str
    device: str
    max_running_requests: int
    dtype: str = "auto"
    tp_size: int = 1
    mem_fraction_static: float | None = None
    max_total_tokens: int | None = None
    context_length: int | None = None
    attention_backend: str | None = None
    page_size: int | None = None
    random_seed: int = 0
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("model", "device", "dtype"):
            if not getattr(self, name):
                raise ConfigError(f"deployment: {name} is empty")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigError(f"deployment: {name} is {value}, must be at least {least}")
        share = self.mem_fraction_static
        if share is not None and not 0 < share < 1:
            raise ConfigError(
                f"deployment: mem_fraction_static is {share}, must lie between 0 and 1"
            )
        secret = next((name for name in extra_args(self.extra) if is_secret(name)), None)
        if secret is not None:
            raise ConfigError(
                f"extra SGLang flags: --{secret.replace('_', '-')} is refused here, since a study "
                "and its profile would keep it; give it to autospec serve"
            )


def server_args(deployment: Deployment, config: SpecConfig) -> dict[str, Any]:
    """Return the keyword arguments of ``sglang.Engine`` that start this arm.

    ``to_argv`` makes a command line of them. Settings left to SGLang are not in it.
    """
    args: dict[str, Any] = {"model_path": deployment.model, "device": deployment.device}
    args |= {name: getattr(deployment, name) for name in ARM_SETTINGS}
    args |= {"log_level": "info"} | extra_args(deployment.extra) | _speculative_args(config)
    return {name: value for name, value in args.items() if value is not None}


def config_of(resolved: Mapping[str, Any]) -> SpecConfig:
    """Read the speculative configuration off server arguments, asked for or resolved.

    Options that SGLang fills in with its defaults are part of the answer where ``resolved`` has
    them.

    Raises:
        ConfigError: the values make no configuration.
    """
    algorithm = resolved.get("speculative_algorithm")
    if algorithm is None:
        return PLAIN
    algorithm = str(algorithm).upper()
    shape = {name: resolved.get(key) for name, key in _SHAPE.items()}
    if algorithm in _DERIVED_SHAPE:
        shape |= {"num_steps": None, "topk": None}
    options = tuple(
        (name, resolved[key])
        for name in OPTION_WORDS
        if (key := _option_key(algorithm, name)) and resolved.get(key) is not None
    )
    draft = resolved.get(_draft_key(algorithm))
    return SpecConfig(algorithm, **shape, draft_model=draft, options=options)


def adjusted(requested: Mapping[str, Any], resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one line for each requested value that the server changed.

    Values left to the server (``auto``) and keys that it does not report are passed over, as is
    NEXTN, which SGLang calls EAGLE.
    """
    return tuple(
        f"{name}: asked {_shown(value)}, got {_shown(resolved[name])}"
        for name, value in requested.items()
        if name in resolved
        and value not in (None, "auto")
        and not _same(value, resolved[name])
        and (value, resolved[name]) != ("NEXTN", "EAGLE")
    )


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[str, ...]:
    """Return one line for each resolved setting in which two arms differ.

    What makes the arms what they are, the speculative settings, is left out.
    """
    return tuple(
        f"{name}: {_shown(a.get(name))} / {_shown(b.get(name))}"
        for name in RESOLVED_KEYS
        if not is_speculative(name) and not _same(a.get(name), b.get(name))
    )


def _speculative_args(config: SpecConfig) -> dict[str, Any]:
    if config.is_plain:
        return {}
    args: dict[str, Any] = {"speculative_algorithm": config.algorithm}
    args |= {key: getattr(config, name) for name, key in _SHAPE.items()}
    args[_draft_key(config.algorithm)] = config.draft_model
    for name, value in config.options:
        key = _option_key(config.algorithm, name)
        if key is None:
            raise ConfigError(f"{config}: {config.algorithm} has no setting for {name}")
        args[key] = value
    return args


def _draft_key(algorithm: str) -> str:
    # UNO drafts with an adapter on the target and refuses a draft model.
    return "uno_lora_path" if algorithm == "UNO" else "speculative_draft_model_path"


def _option_key(algorithm: str, name: str) -> str | None:
    if name == "block_size":
        return _BLOCK_KEYS.get(algorithm)
    return f"speculative_{name}" if algorithm == "NGRAM" else None


def _same(a: Any, b: Any) -> bool:
    # A number may come back as text, and a tuple as a list.
    return bool(a == b) or str(a) == str(b) or _listed(a) == _listed(b)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
