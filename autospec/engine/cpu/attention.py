"""Attention over the paged key and value cache, batched."""

# ruff: noqa: PLR0917 - the order of the arguments is SGLang's
from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from autospec.engine.cpu.blocks import Block, Layout, cached_blocks
from autospec.engine.cpu.threads import use_threads_for
from autospec.errors import EngineError

__all__ = ["decode_attention_cpu", "extend_attention_cpu"]


def decode_attention_cpu(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k_scale: float,
    v_scale: float,
    output: torch.Tensor,
    key: torch.Tensor | None,
    value: torch.Tensor | None,
    loc: torch.Tensor,
    attn_logits: torch.Tensor,  # noqa: ARG001 - scratch of the native kernel
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    """Attention of one new token for each request, whose key and value are stored first.

    Args:
        query: ``[requests, heads, head_size]``.
        k_cache: ``[slots, kv_heads, head_size]``, written.
        v_cache: ``[slots, kv_heads, value_size]``, written.
        k_scale: must be 1.
        v_scale: must be 1.
        output: ``[requests, heads, value_size]``, written.
        key: ``[requests, kv_heads * head_size]`` in any view, or None when it is stored already.
        value: likewise.
        loc: ``[requests]``, the slots of the new keys and values.
        attn_logits: not used.
        req_to_token: ``[rows, pool_len]``, slot of each token.
        req_pool_indices: ``[requests]``, row of each request.
        seq_lens: ``[requests]``, tokens of each request, the new one included.
        sm_scale: factor of the scores.
        logit_cap: ``cap * tanh(score / cap)`` when above 0.
        is_cross_attn: must be False.
        sliding_window_size: keys seen, the new one included; 0 for all.
        encoder_lens: must be None.
        sinks: must be None.

    Raises:
        EngineError: shapes, dtypes or features that do not fit.
    """
    kernel = "decode_attention_cpu"
    _check_features(kernel, k_scale, v_scale, is_cross_attn, encoder_lens, sinks)
    _check_cache(kernel, query, k_cache, v_cache, output)
    if query.shape[0] != seq_lens.shape[0]:
        raise EngineError(f"{kernel}: {query.shape[0]} queries for {seq_lens.shape[0]} requests")
    if key is not None and value is not None:
        k_cache.index_copy_(0, loc, key.view(-1, *k_cache.shape[1:]))
        v_cache.index_copy_(0, loc, value.view(-1, *v_cache.shape[1:]))
    layout = Layout(req_to_token, req_pool_indices, seq_lens, window=max(0, sliding_window_size))
    _attend(query, k_cache, v_cache, output, layout, sm_scale, logit_cap)


def extend_attention_cpu(
    query: torch.Tensor,
    key: torch.Tensor | None,  # noqa: ARG001 - read from the cache, where it is stored already
    value: torch.Tensor | None,  # noqa: ARG001 - as above
    output: torch.Tensor,
    k_buffer: torch.Tensor,
    v_buffer: torch.Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    extend_start_loc: torch.Tensor,
    max_len_extend: int,  # noqa: ARG001 - follows from extend_seq_lens
    sm_scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
    tree_mask: torch.Tensor | None,
    is_causal: bool,
) -> None:
    """Attention of several new tokens for each request, already stored in the cache.

    Args:
        query: ``[tokens, heads, head_size]``, the requests' new tokens one after another.
        key: not used; SGLang's backend has stored it.
        value: not used, as the key.
        output: ``[tokens, heads, value_size]``, written.
        k_buffer: ``[slots, kv_heads, head_size]``.
        v_buffer: ``[slots, kv_heads, value_size]``.
        k_scale: must be 1.
        v_scale: must be 1.
        req_to_token: ``[rows, pool_len]``, slot of each token.
        req_pool_indices: ``[requests]``, row of each request.
        seq_lens: ``[requests]``, tokens of each request, the new ones included.
        extend_seq_lens: ``[requests]``, new tokens of each request.
        extend_start_loc: ``[requests]``, row of the first of them.
        max_len_extend: not used.
        sm_scale: factor of the scores.
        logit_cap: ``cap * tanh(score / cap)`` when above 0.
        is_cross_attn: must be False.
        sliding_window_size: keys seen, the token itself included; 0 for all.
        encoder_lens: must be None.
        sinks: must be None.
        tree_mask: ``[requests * n * n]`` booleans, QLEN_ONLY: which of a request's n new tokens
            each of them sees, all of the prefix beside; None for causal order.
        is_causal: must be True.

    Raises:
        EngineError: shapes, dtypes or features that do not fit.
    """
    kernel = "extend_attention_cpu"
    _check_features(kernel, k_scale, v_scale, is_cross_attn, encoder_lens, sinks)
    _check_cache(kernel, query, k_buffer, v_buffer, output)
    if not is_causal:
        raise EngineError(f"{kernel}: only causal attention is supported")
    layout = Layout(
        req_to_token,
        req_pool_indices,
        seq_lens,
        extend_seq_lens,
        extend_start_loc,
        tree_mask,
        window=max(0, sliding_window_size),
    )
    _attend(query, k_buffer, v_buffer, output, layout, sm_scale, logit_cap)


def _check_features(
    kernel: str,
    k_scale: float,
    v_scale: float,
    is_cross_attn: bool,
    encoder_lens: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> None:
    if is_cross_attn or encoder_lens is not None:
        raise EngineError(f"{kernel}: encoder-decoder attention is not supported")
    if sinks is not None:
        raise EngineError(f"{kernel}: attention sinks are not supported")
    if k_scale != 1.0 or v_scale != 1.0:
        raise EngineError(f"{kernel}: cache scales {k_scale}, {v_scale} are not 1: not supported")


def _check_cache(
    kernel: str,
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    output: torch.Tensor,
) -> None:
    if not query.dtype == k_cache.dtype == v_cache.dtype == output.dtype:
        raise EngineError(
            f"{kernel}: query {query.dtype}, cache {k_cache.dtype}, {v_cache.dtype} and output "
            f"{output.dtype} must be of one dtype"
        )
    heads_fit = query.ndim == k_cache.ndim == 3 and query.shape[1] % k_cache.shape[1] == 0
    if not heads_fit or query.shape[2] != k_cache.shape[2]:
        raise EngineError(
            f"{kernel}: query {tuple(query.shape)} does not fit a cache {tuple(k_cache.shape)}"
        )
    if output.shape != (*query.shape[:2], v_cache.shape[2]):
        raise EngineError(
            f"{kernel}: output {tuple(output.shape)} does not fit query {tuple(query.shape)} and "
            f"values {tuple(v_cache.shape)}"
        )
    if not (k_cache.is_contiguous() and v_cache.is_contiguous()):
        raise EngineError(f"{kernel}: the cache must be contiguous")


def _attend(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    output: torch.Tensor,
    layout: Layout,
    scale: float,
    logit_cap: float,
) -> None:
    groups = query.shape[1] // k_cache.shape[1]
    for block in cached_blocks(layout, groups, query.dtype):
        part = query if block.covers_all else query.index_select(0, block.rows)
        result = _attend_block(part, k_cache, v_cache, block, scale, logit_cap)
        if block.covers_all:
            output.copy_(result)
        else:
            output.index_copy_(0, block.rows, result)


def _attend_block(
    query: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    block: Block,
    scale: float,
    logit_cap: float,
) -> torch.Tensor:
    """``[batch * queries, heads, value_size]``.

    The query heads that share a key head are laid out as further queries of it, because PyTorch
    would otherwise repeat the keys and values for them.
    """
    batch, queries, kv_heads = block.batch, block.queries, k_cache.shape[1]
    groups = query.shape[1] // kv_heads
    use_threads_for(query.numel() * block.keys)
    keys = k_cache.flatten(1).index_select(0, block.slots)
    values = v_cache.flatten(1).index_select(0, block.slots)
    keys = keys.view(batch, block.keys, kv_heads, -1).transpose(1, 2)
    values = values.view(batch, block.keys, kv_heads, -1).transpose(1, 2)
    grouped = query.view(batch, queries, kv_heads, groups, -1)
    if queries == 1:
        grouped = grouped.squeeze(1)
    else:
        grouped = grouped.permute(0, 2, 3, 1, 4).reshape(batch, kv_heads, groups * queries, -1)
    if logit_cap > 0:
        result = _capped(grouped, keys, values, block.mask, scale, logit_cap)
    else:
        result = scaled_dot_product_attention(
            grouped, keys, values, attn_mask=block.mask, scale=scale
        )
    if queries > 1:
        result = result.view(batch, kv_heads, groups, queries, -1).permute(0, 3, 1, 2, 4)
    return result.reshape(batch * queries, kv_heads * groups, -1)


def _capped(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    mask: torch.Tensor | None,
    scale: float,
    logit_cap: float,
) -> torch.Tensor:
    scores = query.float() @ keys.float().transpose(-1, -2)
    scores = scores.mul_(scale / logit_cap).tanh_().mul_(logit_cap)
    if mask is not None:
        scores += mask
    return (scores.softmax(-1) @ values.float()).to(query.dtype)
