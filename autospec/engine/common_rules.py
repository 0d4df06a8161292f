"""Rules that hold for several drafting methods."""

from __future__ import annotations

from typing import Final

from autospec.engine.architectures import MTP_ARCHITECTURES
from autospec.engine.rules import EAGLE_FAMILY, TREE_FAMILY, Case, Rule, tree_capacity

__all__ = ["COMMON_RULES"]

_MAX_DRAFT_TOKENS: Final = 1024
#: Devices of each method; None is any.
_DEVICES: Final[dict[str, frozenset[str] | None]] = {
    "EAGLE": None,
    "EAGLE3": None,
    "NEXTN": None,
    "STANDALONE": None,
    "NGRAM": frozenset({"cuda", "cpu", "xpu"}),
    "DFLASH": frozenset({"cuda", "npu", "xpu"}),
    "DSPARK": frozenset({"cuda", "npu", "xpu"}),
    "UNO": frozenset({"cuda"}),
}
#: Backends that verify a tree over pages of several tokens.
_TREE_PAGES: Final = frozenset({"flashinfer", "fa3", "triton"})
#: Backends that bring pages of several tokens with them, and verify chains only.
_CHAIN_ONLY: Final = frozenset(
    {"trtllm_mha", "trtllm_mla", "flashmla", "cutedsl_mla", "tokenspeed_mla", "hpc_ops"}
)
_NO_VERIFY: Final = frozenset({"torch_native", "flex_attention"})


def _known(case: Case) -> str | None:
    if case.config.is_plain or case.algorithm in _DEVICES:
        return None
    if case.algorithm == "NONE":
        return "SGLang starts with NONE and crashes at the first request; say PLAIN"
    return f"SGLang has no algorithm {case.algorithm}, it has {', '.join(sorted(_DEVICES))}"


def _device(case: Case) -> str | None:
    allowed = _DEVICES.get(case.algorithm)
    if allowed is None or case.device in allowed:
        return None
    return f"does not run on device {case.device}, only on {', '.join(sorted(allowed))}"


def _shape_complete(case: Case) -> str | None:
    shape = (case.config.num_steps, case.config.topk, case.config.num_draft_tokens)
    given = sum(value is not None for value in shape)
    if case.algorithm not in TREE_FAMILY or given in (0, 3):
        return None
    return f"needs all three of steps, topk and tokens or none, got {given}"


def _shape(case: Case) -> tuple[int, int, int] | None:
    config = case.config
    if case.algorithm not in TREE_FAMILY:
        return None
    if config.num_steps is None or config.topk is None or config.num_draft_tokens is None:
        return None
    return config.num_steps, config.topk, config.num_draft_tokens


def _chain(case: Case) -> str | None:
    match _shape(case):
        case (steps, 1, tokens) if tokens != steps + 1:
            return f"a chain (topk=1) of {steps} steps has tokens={steps + 1}, not {tokens}"
    return None


def _tree_bound(case: Case) -> str | None:
    match _shape(case):
        case (steps, topk, tokens) if topk > 1 and tokens > tree_capacity(steps, topk):
            most = tree_capacity(steps, topk)
            return f"a tree of steps={steps} topk={topk} holds at most {most} tokens, not {tokens}"
    return None


def _tokens_cover(case: Case) -> str | None:
    match _shape(case):
        case (steps, topk, tokens) if topk > 1 and tokens < steps + 1:
            return f"needs tokens of at least steps + 1 = {steps + 1}, or the last go unused"
    return None


def _tokens_least(case: Case) -> str | None:
    tokens = case.config.num_draft_tokens
    if case.config.is_plain or tokens is None or tokens >= 2:
        return None
    return f"tokens={tokens} holds the root alone, needs at least 2"


def _tokens_most(case: Case) -> str | None:
    tokens = case.config.num_draft_tokens or 0
    if tokens <= _MAX_DRAFT_TOKENS:
        return None
    return f"tokens={tokens} is above the kernels' {_MAX_DRAFT_TOKENS}"


def _tree_pages(case: Case) -> str | None:
    pages, backend = case.deployment.page_size or 1, case.deployment.attention_backend
    allowed = frozenset({"flashinfer"}) if case.algorithm == "NGRAM" else _TREE_PAGES
    if case.device == "cpu" and backend is None:
        backend = "intel_amx"
    if case.topk == 1 or pages == 1 or backend is None or backend in allowed:
        return None
    if case.algorithm not in TREE_FAMILY | {"NGRAM"}:
        return None
    names = ", ".join(sorted(allowed))
    return f"a tree with page_size={pages} needs attention backend {names}, not {backend}"


def _chain_backend(case: Case) -> str | None:
    refused = sorted(case.backends & _CHAIN_ONLY)
    if case.topk == 1 or not refused or case.algorithm not in TREE_FAMILY | {"NGRAM"}:
        return None
    what = "breadth" if case.algorithm == "NGRAM" else "topk"
    return f"attention backend {refused[0]} verifies chains only, {what} must be 1, not {case.topk}"


def _verify_backend(case: Case) -> str | None:
    refused = sorted(case.backends & _NO_VERIFY)
    if case.config.is_plain or not refused:
        return None
    return f"attention backend {refused[0]} cannot verify drafts"


def _eagle_draft(case: Case) -> str | None:
    if case.algorithm not in EAGLE_FAMILY or case.config.draft_model or case.target is None:
        return None
    if case.target.architecture in MTP_ARCHITECTURES:
        return None
    return f"needs a draft model, since a {case.target.architecture} has no draft layers of its own"


def _standalone_draft(case: Case) -> str | None:
    if case.algorithm != "STANDALONE" or case.config.draft_model:
        return None
    return "needs a draft model; without one SGLang drafts with the target itself"


COMMON_RULES: Final = (
    Rule(
        "known-algorithm",
        "speculative/spec_info.py from_string",
        "The algorithm is one of SGLang's own, and NONE is said as PLAIN.",
        _known,
    ),
    Rule(
        "device",
        "arg_groups/speculative_hook.py _handle_dflash, _handle_uno, _handle_dspark, _handle_ngram",
        "The method runs on the deployment's device.",
        _device,
    ),
    Rule(
        "shape-complete",
        "arg_groups/speculative_hook.py _handle_eagle_family",
        "Steps, topk and draft tokens are given together or not at all.",
        _shape_complete,
    ),
    Rule(
        "chain",
        "arg_groups/speculative_hook.py _handle_eagle_family",
        "With topk=1 the draft tokens are steps + 1.",
        _chain,
    ),
    Rule(
        "tree-bound",
        "speculative/eagle_utils.py organize_draft_results",
        "A tree's draft tokens fit into 1 + topk + (steps - 1) topk^2.",
        _tree_bound,
    ),
    Rule(
        "tokens-cover-steps",
        "speculative/eagle_utils.py organize_draft_results",
        "A tree's draft tokens are at least steps + 1.",
        _tokens_cover,
    ),
    Rule(
        "tokens-least",
        "speculative/eagle_utils.py organize_draft_results",
        "A verify step holds the root and at least one draft.",
        _tokens_least,
    ),
    Rule(
        "tokens-most",
        "../kernels/jit/csrc/speculative/tree.cuh draft_token_num <= 1024",
        "A verify step holds at most 1024 tokens.",
        _tokens_most,
    ),
    Rule(
        "tree-pages",
        "arg_groups/speculative_hook.py _handle_eagle_family, _handle_ngram",
        "A tree over pages of several tokens needs a backend that can split them.",
        _tree_pages,
    ),
    Rule(
        "chain-backend",
        "arg_groups/overrides.py _mla_backend_page_constraints",
        "Backends with pages of their own verify chains only.",
        _chain_backend,
    ),
    Rule(
        "verify-backend",
        "layers/attention/torch_native_backend.py extend_prefix_lens",
        "The attention backend can verify drafts.",
        _verify_backend,
    ),
    Rule(
        "standalone-draft",
        "managers/tp_worker.py speculative_draft_model_path",
        "STANDALONE has a draft model.",
        _standalone_draft,
    ),
    Rule(
        "eagle-draft",
        "configs/model_config.py _config_draft_model",
        "EAGLE has a draft model, unless the target carries draft layers.",
        _eagle_draft,
    ),
)
