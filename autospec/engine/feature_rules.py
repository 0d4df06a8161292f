"""Rules about what else a server does beside drafting: parallelism, adapters, long contexts."""

from __future__ import annotations

from typing import Final

from autospec.engine.rules import TREE_FAMILY, Case, Rule

__all__ = ["FEATURE_RULES"]


def _int32(case: Case) -> str | None:
    known = case.target.context_length if case.target else None
    context = case.deployment.context_length or known
    if case.algorithm not in TREE_FAMILY or context is None:
        return None
    product = case.deployment.max_running_requests * case.topk * context
    if product < 2**31:
        return None
    return (
        f"max_running_requests x topk x context = {case.deployment.max_running_requests} x "
        f"{case.topk} x {context} must be below 2^31"
    )


def _pipeline(case: Case) -> str | None:
    if case.config.is_plain or case.flag("pp_size") <= 1:
        return None
    prefill_only = case.extra.get("disaggregation_mode") == "prefill"
    if case.algorithm in ("EAGLE", "NEXTN") or (case.algorithm == "DSPARK" and prefill_only):
        return None
    return "does not run with pipeline parallelism (--pp-size)"


def _lora(case: Case) -> str | None:
    asked = bool(case.extra.get("enable_lora") or case.extra.get("lora_paths"))
    if asked and case.algorithm in ("STANDALONE", "UNO"):
        return "does not run with LoRA adapters (--enable-lora, --lora-paths)"
    return None


def _attention_dp(case: Case) -> str | None:
    if not case.attention_dp:
        return None
    if case.algorithm in ("STANDALONE", "NGRAM", "UNO"):
        return "does not run with attention data parallelism (--attn-dp-size)"
    if case.algorithm == "DFLASH" and case.device not in ("cuda", "npu"):
        return f"runs with attention data parallelism on cuda and npu only, not on {case.device}"
    needs_head = case.algorithm == "DSPARK" or (case.algorithm == "DFLASH" and case.device != "npu")
    if needs_head and not case.extra.get("enable_dp_lm_head"):
        return "needs --enable-dp-lm-head with attention data parallelism (--attn-dp-size)"
    return None


def _torch_compile(case: Case) -> str | None:
    if case.config.is_plain or case.device != "cpu" or not case.extra.get("enable_torch_compile"):
        return None
    return "does not run with --enable-torch-compile on a CPU"


def _deepseek_v4(case: Case) -> str | None:
    if case.config.is_plain or case.target is None or case.algorithm == "DSPARK":
        return None
    if case.target.architecture != "DeepseekV4ForCausalLM":
        return None
    if case.algorithm in ("EAGLE", "NEXTN") and case.config.topk == 1:
        return None
    return "this target takes EAGLE with topk=1 or DSPARK only"


#: In the order in which violations are named.
FEATURE_RULES: Final = (
    Rule(
        "int32-offsets",
        "speculative/spec_utils.py draft_kv_indices_buffer_width",
        "Requests x topk x context stays below 2^31.",
        _int32,
    ),
    Rule(
        "pipeline",
        "arg_groups/validation_hook.py check_pipeline_parallel_compat",
        "Only EAGLE runs with pipeline parallelism.",
        _pipeline,
    ),
    Rule(
        "lora",
        "arg_groups/lora_hook.py check_lora_speculative_compatibility",
        "STANDALONE and UNO run without LoRA.",
        _lora,
    ),
    Rule(
        "attention-dp",
        "arg_groups/speculative_hook.py attn_dp_enabled_of",
        "Attention data parallelism is for EAGLE, and for DFLASH and DSPARK with a split head.",
        _attention_dp,
    ),
    Rule(
        "cpu-torch-compile",
        "model_executor/cpu_graph_runner.py CPUGraphRunner does not support speculative",
        "The CPU's graph runner does not speculate.",
        _torch_compile,
    ),
    Rule(
        "deepseek-v4",
        "arg_groups/deepseek_v4_hook.py speculative_algorithm",
        "DeepSeek V4 takes EAGLE chains and DSPARK only.",
        _deepseek_v4,
    ),
)
