"""Norms, the gated activation and rotary positions."""

# ruff: noqa: PLR0917 - the order of the arguments is SGLang's
from __future__ import annotations

import torch
from torch.nn.functional import rms_norm, silu

from autospec.engine.cpu.checks import INTEGER
from autospec.errors import EngineError

__all__ = ["fused_add_rmsnorm_cpu", "rmsnorm_cpu", "rotary_embedding_cpu", "silu_and_mul_cpu"]


def rmsnorm_cpu(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight`` over the last dimension.

    Args:
        x: ``[..., hidden]``.
        weight: ``[hidden]``, of x's dtype.
        eps: added to the mean square.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    if weight.ndim != 1 or x.shape[-1] != weight.shape[0] or x.dtype != weight.dtype:
        raise EngineError(
            f"rmsnorm_cpu: x {tuple(x.shape)} {x.dtype} does not fit a weight "
            f"{tuple(weight.shape)} {weight.dtype}"
        )
    return rms_norm(x, weight.shape, weight, eps)


def fused_add_rmsnorm_cpu(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> None:
    """Add x to the residual, then replace x by the norm of the sum; both in place.

    Args:
        x: ``[..., hidden]``, replaced.
        residual: of x's shape and dtype, replaced.
        weight: ``[hidden]``, of x's dtype.
        eps: as in `rmsnorm_cpu`.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    if residual.shape != x.shape or residual.dtype != x.dtype:
        raise EngineError(
            f"fused_add_rmsnorm_cpu: residual {tuple(residual.shape)} {residual.dtype} is not of "
            f"x's kind {tuple(x.shape)} {x.dtype}"
        )
    residual.add_(x)
    x.copy_(rmsnorm_cpu(residual, weight, eps))


def silu_and_mul_cpu(x: torch.Tensor) -> torch.Tensor:
    """``silu(gate) * up`` for rows that hold the gate, then up.

    Args:
        x: ``[..., 2 * width]``.

    Returns:
        ``[..., width]``.

    Raises:
        EngineError: the last dimension is odd.
    """
    width, rest = divmod(x.shape[-1], 2)
    if rest:
        raise EngineError(f"silu_and_mul_cpu: last dimension is {x.shape[-1]}, must be even")
    return silu(x.narrow(-1, 0, width)).mul_(x.narrow(-1, width, width))


def rotary_embedding_cpu(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin_cache: torch.Tensor,
    is_neox: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotate the first ``rotary`` values of each head by the token's position.

    Args:
        positions: ``[tokens]``, integers.
        query: ``[tokens, heads * head_size]`` or ``[tokens, heads, head_size]``.
        key: the same with the key's heads.
        head_size: size of one head.
        cos_sin_cache: ``[positions, rotary]``: cosines, then sines; of the query's dtype.
        is_neox: rotate value i with value ``i + rotary / 2`` (True) or ``i + 1`` (False).

    Returns:
        Rotated query and key in the shapes given.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    if positions.ndim != 1 or positions.dtype not in INTEGER:
        raise EngineError(
            f"rotary_embedding_cpu: positions are {tuple(positions.shape)} {positions.dtype}, "
            "must be one integer for each token"
        )
    if not query.dtype == key.dtype == cos_sin_cache.dtype:
        raise EngineError(
            f"rotary_embedding_cpu: query {query.dtype}, key {key.dtype} and cache "
            f"{cos_sin_cache.dtype} must be of one dtype"
        )
    angles = cos_sin_cache.index_select(0, positions).unsqueeze(1)
    joint = _side_by_side(query, key, head_size)
    if joint is None:
        query_heads = query.reshape(query.shape[0], -1, head_size)
        key_heads = key.reshape(key.shape[0], -1, head_size)
        return (
            _rotate(query_heads, angles, is_neox).view(query.shape),
            _rotate(key_heads, angles, is_neox).view(key.shape),
        )
    # Query and key are neighbours in one buffer, as a fused projection leaves them: one pass.
    rotated = _rotate(joint, angles, is_neox).flatten(1)
    return rotated[:, : query.shape[1]], rotated[:, query.shape[1] :]


def _side_by_side(query: torch.Tensor, key: torch.Tensor, head_size: int) -> torch.Tensor | None:
    """``[tokens, query heads + key heads, head_size]`` over both, if they are neighbours."""
    if query.ndim != 2 or query.stride() != key.stride() or query.stride(1) != 1:
        return None
    if key.data_ptr() != query.data_ptr() + query.shape[1] * query.element_size():
        return None
    if query.untyped_storage().data_ptr() != key.untyped_storage().data_ptr():
        return None
    heads = (query.shape[1] + key.shape[1]) // head_size
    return query.as_strided((query.shape[0], heads, head_size), (query.stride(0), head_size, 1))


def _rotate(x: torch.Tensor, angles: torch.Tensor, is_neox: bool) -> torch.Tensor:
    """Rotate ``[tokens, heads, head_size]`` by ``[tokens, 1, rotary]`` into a new tensor."""
    rotary = angles.shape[-1]
    cos, sin = angles.chunk(2, -1)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if rotary < x.shape[-1]:
        out[..., rotary:] = x[..., rotary:]
    if is_neox:
        first, second = x[..., : rotary // 2], x[..., rotary // 2 : rotary]
        out_first, out_second = out[..., : rotary // 2], out[..., rotary // 2 : rotary]
    else:
        first, second = x[..., 0:rotary:2], x[..., 1:rotary:2]
        out_first, out_second = out[..., 0:rotary:2], out[..., 1:rotary:2]
    torch.mul(first, cos, out=out_first)
    out_first.addcmul_(second, sin, value=-1)
    torch.mul(second, cos, out=out_second)
    out_second.addcmul_(first, sin)
    return out
