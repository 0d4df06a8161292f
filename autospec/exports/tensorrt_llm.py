"""TensorRT-LLM: a file for ``trtllm-serve MODEL --config``.

Shapes: TensorRT-LLM's document "Speculative Decoding" and its ``DecodingBaseConfig``, as of 1.4.
``draft_len_schedule`` maps the greatest batch size of a range to its draft length; above the last
one nothing is drafted, and the first must have the longest drafts.
"""

from __future__ import annotations

from typing import Any, Final

from autospec.config import SpecConfig
from autospec.control.costs import drafting_depth
from autospec.errors import ConfigError
from autospec.exports.plan import ELSEWHERE, Export, Slot, commented, slots, slots_note
from autospec.profile import Profile
from autospec.schema import yaml_text

__all__ = ["export_tensorrt_llm"]

_METHODS: Final = {
    "EAGLE3": "Eagle3",
    "NEXTN": "MTP",
    "STANDALONE": "DraftTarget",
    "NGRAM": "NGram",
    "DFLASH": "DFlash",
}
#: Methods whose draft length it can change while it runs (``support_dynamic_draft_len``).
_DYNAMIC: Final = ("EAGLE3", "NEXTN", "STANDALONE", "DFLASH")
_SAME: Final = {
    "tp_size": "tensor_parallel_size",
    "max_running_requests": "max_batch_size",
    "context_length": "max_seq_len",
}


def export_tensorrt_llm(profile: Profile) -> Export:
    """The deployed configuration for TensorRT-LLM, with what it cannot express.

    Raises:
        ConfigError: it has no such method.
    """
    arguments, config = profile.server_args(), profile.choice.config
    document: dict[str, Any] = {
        theirs: arguments[ours] for ours, theirs in _SAME.items() if ours in arguments
    }
    notes = [ELSEWHERE]
    if config.is_plain:
        notes.append(f"plain decoding: {profile.verdict.reason}")
    else:
        document["speculative_config"] = _speculative(profile, config, notes)
    if "mem_fraction_static" in arguments:
        notes.append(
            f"mem_fraction_static={arguments['mem_fraction_static']} is left out: "
            "kv_cache_config.free_gpu_memory_fraction is a share of what the weights leave free"
        )
    head = [f"trtllm-serve {profile.target.model} --config THIS_FILE", *notes]
    return Export(commented(head, yaml_text(document)), tuple(notes))


def _speculative(profile: Profile, config: SpecConfig, notes: list[str]) -> dict[str, Any]:
    method = _METHODS.get(config.algorithm)
    if method is None:
        raise ConfigError(f"TensorRT-LLM has no {config.algorithm}; it has {', '.join(_METHODS)}")
    depth, tree = drafting_depth(config), (config.topk or 1) > 1
    document: dict[str, Any] = {"decoding_type": method, "max_draft_len": depth}
    if config.draft_model is not None:
        document["speculative_model"] = config.draft_model
    if tree and config.algorithm == "EAGLE3":
        document |= _tree(config, depth)
        notes.append("its dynamic tree is not SGLang's: acceptance will differ")
    elif tree:
        notes.append(f"it drafts a chain: topk={config.topk} becomes one path of {depth}")
    if config.algorithm == "NGRAM":
        notes.append("its n-gram pool is filled and matched in another way: acceptance will differ")
        notes += [f"{name}={value} has no counterpart" for name, value in config.options]
    ranges = slots(profile)
    if len(ranges) > 1:
        refusal = _no_schedule(config, ranges, tree=tree)
        if refusal is None:
            document["draft_len_schedule"] = _schedule(profile, ranges)
            notes.append(slots_note(profile))
        else:
            notes.append(f"one draft length for every load, since {refusal}")
    return document


def _tree(config: SpecConfig, depth: int) -> dict[str, Any]:
    topk = config.topk or 1
    total = min(max((config.num_draft_tokens or 1) - 1, depth), topk * depth)
    return {
        "use_dynamic_tree": True,
        "dynamic_tree_max_topK": topk,
        "max_total_draft_tokens": total,
    }


def _no_schedule(config: SpecConfig, ranges: tuple[Slot, ...], *, tree: bool) -> str | None:
    """Why the measured schedule cannot be said, or None."""
    if tree:
        return "draft_len_schedule is for chains"
    if config.algorithm not in _DYNAMIC:
        return f"draft_len_schedule is not for {config.algorithm}"
    if ranges[0].depth != drafting_depth(config):
        return "its schedule must begin with the longest drafts, the measured one does not"
    return None


def _schedule(profile: Profile, ranges: tuple[Slot, ...]) -> dict[int, int]:
    limit = profile.server_args().get("max_running_requests", ranges[-1].first)
    lengths = {slot.last or max(slot.first, limit): slot.depth for slot in ranges}
    last = max(lengths)
    # Above the last key nothing is drafted, so a last range without drafts needs no key.
    return lengths if lengths[last] else {k: v for k, v in lengths.items() if k != last}
