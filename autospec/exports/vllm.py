"""vLLM: a file for ``vllm serve --config``.

Shapes: vLLM's documents "Speculative Decoding" (``--speculative-config`` schema), "Dynamic
Speculative Decoding" and "Server Arguments", as of vLLM 0.30.
"""

from __future__ import annotations

from typing import Any, Final

from autospec.config import SpecConfig
from autospec.control.costs import drafting_depth
from autospec.errors import ConfigError
from autospec.exports.plan import ELSEWHERE, Export, commented, slots, slots_note
from autospec.profile import Profile
from autospec.schema import yaml_text

__all__ = ["export_vllm"]

_METHODS: Final = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle3",
    "NEXTN": "mtp",
    "STANDALONE": "draft_model",
    "NGRAM": "ngram",
    "DFLASH": "dflash",
    "DSPARK": "dspark",
}
#: Methods that vLLM's own document says dynamic draft lengths were tested with.
_TESTED: Final = ("EAGLE", "EAGLE3", "DFLASH")
#: What ``SGLang's name: vLLM's name`` carries over unchanged.
_SAME: Final = {
    "tp_size": "tensor-parallel-size",
    "dtype": "dtype",
    "max_running_requests": "max-num-seqs",
    "context_length": "max-model-len",
    "random_seed": "seed",
}


def export_vllm(profile: Profile) -> Export:
    """The deployed configuration for vLLM, with what vLLM cannot express.

    Raises:
        ConfigError: vLLM has no such method.
    """
    arguments, config = profile.server_args(), profile.choice.config
    document: dict[str, Any] = {"model": profile.target.model}
    document |= {theirs: arguments[ours] for ours, theirs in _SAME.items() if ours in arguments}
    notes = [ELSEWHERE]
    if config.is_plain:
        notes.append(f"plain decoding: {profile.verdict.reason}")
    else:
        document["speculative-config"] = _speculative(profile, config)
        notes += _losses(profile, config)
    if "mem_fraction_static" in arguments:
        notes.append(
            f"mem_fraction_static={arguments['mem_fraction_static']} is left out: vLLM's "
            "gpu-memory-utilization counts activations too"
        )
    head = ["vllm serve --config THIS_FILE", *notes]
    return Export(commented(head, yaml_text(document)), tuple(notes))


def _speculative(profile: Profile, config: SpecConfig) -> dict[str, Any]:
    method = _METHODS.get(config.algorithm)
    if method is None:
        raise ConfigError(f"vLLM has no {config.algorithm}; it has {', '.join(_METHODS)}")
    ranges = slots(profile)
    longest = max(drafting_depth(config), *(slot.depth for slot in ranges))
    document: dict[str, Any] = {"method": method, "num_speculative_tokens": longest}
    if config.draft_model is not None:
        document["model"] = config.draft_model
    if len(ranges) > 1:
        limit = profile.server_args().get("max_running_requests", ranges[-1].first)
        document["num_speculative_tokens_per_batch_size"] = [
            [slot.first, slot.last or max(slot.first, limit), slot.depth] for slot in ranges
        ]
    return document


def _losses(profile: Profile, config: SpecConfig) -> list[str]:
    notes: list[str] = []
    several = len(slots(profile)) > 1
    if several:
        notes.append(slots_note(profile))
        notes.append("data parallelism turns num_speculative_tokens_per_batch_size off")
    if several and config.algorithm not in _TESTED:
        notes.append(f"vLLM says that it tested draft lengths by batch size with {_TESTED} only")
    if config.algorithm == "NGRAM":
        notes.append(
            "vLLM's ngram looks in a request's own prompt and answer, SGLang's remembers the "
            "answers of other requests: acceptance will differ"
        )
        notes += [f"{name}={value} has no counterpart" for name, value in config.options]
    if (config.topk or 1) > 1:
        notes.append(
            f"vLLM drafts a chain: the tree of topk={config.topk} with "
            f"{config.num_draft_tokens} tokens becomes one path of {drafting_depth(config)}"
        )
    return notes
