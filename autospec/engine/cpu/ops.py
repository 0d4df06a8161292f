"""What SGLang finds under ``sgl_kernel`` in a process that has the overlay on its path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import _OpNamespace

from autospec.engine.cpu import attention, cache, elementwise, linear, threads, tokens, tree
from autospec.errors import EngineError

__all__ = ["FUNCTIONS", "OPERATORS", "MissingKernelError", "install", "refusal"]


class MissingKernelError(EngineError, AttributeError):
    """A kernel that only other models or features need; also tells ``hasattr`` that it is absent.

    The engine on a CPU is for dense models with ordinary attention.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"sgl_kernel.{name} is not part of autospec's CPU engine, which serves dense "
            "Llama-like models; SGLang's own CPU build of sgl_kernel has it"
        )


def refusal(name: str) -> Callable[..., Any]:
    """A stand-in that raises `MissingKernelError` when it is called, for names bound at import."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise MissingKernelError(name)

    return refuse


# As attributes of the module sgl_kernel.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "assign_draft_cache_locs_contiguous_cpu": cache.assign_draft_cache_locs_contiguous_cpu,
    "assign_extend_cache_locs_cpu": cache.assign_extend_cache_locs_cpu,
    "assign_req_to_token_pool_cpu": cache.assign_req_to_token_pool_cpu,
    "build_draft_decode_metadata_cpu": cache.build_draft_decode_metadata_cpu,
    "build_tree_kernel_efficient_cpu": tree.build_tree_kernel_efficient_cpu,
    "copy_all_layer_kv_cache_cpu": cache.copy_all_layer_kv_cache_cpu,
    "fill_accept_out_cache_loc_cpu": tokens.fill_accept_out_cache_loc_cpu,
    "fill_bonus_tokens_cpu": tokens.fill_bonus_tokens_cpu,
    "rotate_input_ids_cpu": tokens.rotate_input_ids_cpu,
    "verify_tree_greedy_cpu": tree.verify_tree_greedy_cpu,
}

# As attributes of torch.ops.sgl_kernel. They are plain functions, not registered operators: a call
# through PyTorch's dispatcher back into Python costs about as much as a small kernel.
OPERATORS: dict[str, Callable[..., Any]] = {
    "convert_weight_packed": linear.convert_weight_packed,
    "decode_attention_cpu": attention.decode_attention_cpu,
    "extend_attention_cpu": attention.extend_attention_cpu,
    "fused_add_rmsnorm_cpu": elementwise.fused_add_rmsnorm_cpu,
    "init_cpu_threads_env": threads.init_cpu_threads_env,
    "initialize": threads.initialize,
    "rmsnorm_cpu": elementwise.rmsnorm_cpu,
    "rotary_embedding_cpu": elementwise.rotary_embedding_cpu,
    "silu_and_mul_cpu": elementwise.silu_and_mul_cpu,
    "store_cache_cpu": cache.store_cache_cpu,
    "weight_packed_linear": linear.weight_packed_linear,
}

# SGLang binds these when it is imported, in srt/layers/rotary_embedding/utils.py,
# srt/layers/attention/vision.py and srt/layers/conv.py; only image models call them.
_BOUND_AT_IMPORT = ("apply_rotary_pos_emb_cpu", "flash_attn_varlen_func", "conv3d_embed_cpu")


class _Namespace(_OpNamespace):
    """``torch.ops.sgl_kernel`` with a better answer for what is not there."""

    def __getattr__(self, op_name: str) -> Any:
        try:
            return super().__getattr__(op_name)
        except AttributeError as error:
            if op_name.startswith("__"):
                raise
            raise MissingKernelError(op_name) from error


def install() -> None:
    """Put the operators where SGLang looks for them."""
    namespace = _Namespace("sgl_kernel")
    for name, function in OPERATORS.items():
        setattr(namespace, name, function)
    for name in _BOUND_AT_IMPORT:
        setattr(namespace, name, refusal(name))
    vars(torch.ops)["sgl_kernel"] = namespace
