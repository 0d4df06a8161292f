"""Slots of the key and value cache: which tokens use which, and copies between them."""

# ruff: noqa: PLR0917 - the order of the arguments is SGLang's
from __future__ import annotations

import ctypes

import torch

from autospec.engine.cpu.checks import INTEGER, check, check_room, check_tensor
from autospec.engine.cpu.tokens import Integers, expand
from autospec.errors import EngineError

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "copy_all_layer_kv_cache_cpu",
    "store_cache_cpu",
]

_INT32, _INT64 = (torch.int32,), (torch.int64,)


def store_cache_cpu(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    indices: torch.Tensor,
    row_dim: int,
) -> None:
    """Store keys and values of new tokens.

    Args:
        k: ``[tokens, ...]``, row_dim values for each token, of the cache's dtype.
        v: likewise.
        k_cache: ``[slots, ...]``, row_dim values for each slot, written.
        v_cache: likewise.
        indices: ``[tokens]``, the slots.
        row_dim: values of one token.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    tokens = indices.shape[0]
    for name, rows, cache in (("k", k, k_cache), ("v", v, v_cache)):
        if (
            rows.dtype != cache.dtype
            or rows.numel() != tokens * row_dim
            or cache.numel() != cache.shape[0] * row_dim
            or not cache.is_contiguous()
        ):
            raise EngineError(
                f"store_cache_cpu: {name} {tuple(rows.shape)} {rows.dtype} does not fit {tokens} "
                f"slots of {row_dim} in a cache {tuple(cache.shape)} {cache.dtype}"
            )
        cache.index_copy_(0, indices, rows.reshape(tokens, *cache.shape[1:]))


def assign_req_to_token_pool_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """``req_to_token[row, start:end] = next slots``, request after request.

    Args:
        req_pool_indices: ``[requests]``, row of each request.
        req_to_token: ``[rows, pool_len]`` int32, written.
        start_offset: ``[requests]``, first position of each.
        end_offset: ``[requests]``, position after the last.
        out_cache_loc: ``[sum(end - start)]`` int64, the slots.
        pool_len: row length of the table.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "assign_req_to_token_pool_cpu"
    rows, columns = _ranges(
        kernel, req_pool_indices, req_to_token, start_offset, end_offset, pool_len
    )
    check_tensor(kernel, "out_cache_loc", out_cache_loc, dtypes=_INT64, shape=(rows.size,))
    req_to_token.numpy()[rows, columns] = out_cache_loc.numpy()


def assign_extend_cache_locs_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """``next slots = req_to_token[row, start:end]``, request after request.

    Args:
        req_pool_indices: ``[requests]``, row of each request.
        req_to_token: ``[rows, pool_len]`` int32.
        start_offset: ``[requests]``, first position of each.
        end_offset: ``[requests]``, position after the last.
        out_cache_loc: at least ``sum(end - start)`` int64, written at its front.
        pool_len: row length of the table.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "assign_extend_cache_locs_cpu"
    rows, columns = _ranges(
        kernel, req_pool_indices, req_to_token, start_offset, end_offset, pool_len
    )
    check_room(kernel, out_cache_loc, rows.size, _INT64)
    out_cache_loc.numpy()[: rows.size] = req_to_token.numpy()[rows, columns]


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    seq_lens: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """The ``topk * num_steps`` slots behind each request's tokens, request after request.

    Args:
        req_pool_indices: ``[requests]``, row of each request.
        req_to_token: ``[rows, pool_len]`` int32.
        seq_lens: ``[requests]``, tokens of each.
        out_cache_loc: at least ``requests * topk * num_steps`` int64, written at its front.
        pool_len: row length of the table.
        topk: branches.
        num_steps: slots of each branch.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "assign_draft_cache_locs_contiguous_cpu"
    ends = seq_lens + topk * num_steps
    rows, columns = _ranges(kernel, req_pool_indices, req_to_token, seq_lens, ends, pool_len)
    check_room(kernel, out_cache_loc, rows.size, _INT64)
    out_cache_loc.numpy()[: rows.size] = req_to_token.numpy()[rows, columns]


def build_draft_decode_metadata_cpu(
    req_to_token: torch.Tensor,
    req_pool_indices: torch.Tensor,
    seq_lens: torch.Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> torch.Tensor:
    """A token table with one row for each branch of each request.

    Args:
        req_to_token: ``[rows, pool_len]`` int32. Behind a request's tokens stand the slots of its
            first branch, then of its second, and so on, num_steps for each.
        req_pool_indices: ``[requests]``, row of each request.
        seq_lens: ``[requests]``, tokens of each.
        topk: branches.
        num_steps: slots of each branch.
        pool_len: row length of the table.

    Returns:
        ``[requests * topk, pool_len]`` int32: a request's tokens, then the branch's own slots. What
        stands behind these has no meaning.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "build_draft_decode_metadata_cpu"
    requests = req_pool_indices.shape[0]
    _check_table(kernel, req_to_token, pool_len)
    check_tensor(kernel, "req_pool_indices", req_pool_indices, dtypes=INTEGER, shape=(None,))
    check_tensor(kernel, "seq_lens", seq_lens, dtypes=INTEGER, shape=(requests,))
    rows = req_to_token.index_select(0, req_pool_indices)
    branch = torch.arange(topk).view(1, topk, 1)
    step = torch.arange(num_steps).view(1, 1, num_steps)
    target = (seq_lens.long().view(-1, 1, 1) + step).expand(-1, topk, -1)
    source = (target + branch * num_steps).reshape(requests, -1)
    check(
        requests == 0 or int(source.max()) < pool_len,
        kernel,
        f"{topk} branches of {num_steps} do not fit behind the tokens in a row of {pool_len}",
    )
    table = rows.repeat_interleave(topk, 0).view(requests, topk, pool_len)
    table.scatter_(2, target, rows.gather(1, source).view(requests, topk, num_steps))
    return table.view(requests * topk, pool_len)


def copy_all_layer_kv_cache_cpu(
    data_ptrs: torch.Tensor, strides: torch.Tensor, tgt_loc: torch.Tensor, src_loc: torch.Tensor
) -> None:
    """Copy cache rows within each layer's buffers, as if all were read before any is written.

    Tokens of a chain are where they belong already: nothing is copied if that holds for all.

    Args:
        data_ptrs: ``[buffers]``, address of each buffer. The caller vouches for them.
        strides: ``[buffers]``, bytes of one row of each.
        tgt_loc: ``[rows]``, rows written.
        src_loc: ``[rows]``, rows read.

    Raises:
        EngineError: shapes, dtypes or row numbers do not fit.
    """
    kernel = "copy_all_layer_kv_cache_cpu"
    check_tensor(kernel, "tgt_loc", tgt_loc, dtypes=INTEGER, shape=(None,))
    check_tensor(kernel, "src_loc", src_loc, dtypes=INTEGER, shape=tuple(tgt_loc.shape))
    check_tensor(
        kernel, "strides", strides, dtypes=(*INTEGER, torch.uint64), shape=tuple(data_ptrs.shape)
    )
    target, source = tgt_loc.long(), src_loc.long()
    if torch.equal(target, source):
        return
    both = torch.cat((target, source))
    first, last = (int(bound) for bound in both.aminmax())
    check(first >= 0, kernel, f"row {first} is negative")
    for address, row_bytes in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        rows = _rows_at(address, last + 1, row_bytes)
        rows.index_copy_(0, target, rows.index_select(0, source))


def _ranges(
    kernel: str,
    req_pool_indices: torch.Tensor,
    table: torch.Tensor,
    starts: torch.Tensor,
    ends: torch.Tensor,
    pool_len: int,
) -> tuple[Integers, Integers]:
    """Row and column in the table of each token of each request's range."""
    requests = tuple(req_pool_indices.shape)
    _check_table(kernel, table, pool_len)
    check_tensor(kernel, "req_pool_indices", req_pool_indices, dtypes=INTEGER, shape=(None,))
    check_tensor(kernel, "start", starts, dtypes=INTEGER, shape=requests)
    check_tensor(kernel, "end", ends, dtypes=INTEGER, shape=requests)
    first, last = starts.numpy(), ends.numpy()
    lengths = last - first
    if lengths.size:
        fits = bool(lengths.min() >= 0 and first.min() >= 0 and last.max() <= pool_len)
        check(fits, kernel, f"ranges {first.tolist()} to {last.tolist()} leave 0..{pool_len}")
    return expand(req_pool_indices.numpy(), first, lengths)


def _check_table(kernel: str, table: torch.Tensor, pool_len: int) -> None:
    check_tensor(kernel, "req_to_token", table, dtypes=_INT32, shape=(None, pool_len))


def _rows_at(address: int, rows: int, row_bytes: int) -> torch.Tensor:
    """A view of memory as rows of the widest integers that fit."""
    memory = (ctypes.c_char * (rows * row_bytes)).from_address(address)
    dtype = torch.int64 if row_bytes % 8 == 0 else torch.uint8
    return torch.frombuffer(memory, dtype=dtype).view(rows, -1)
