"""Dense layers on weights that oneDNN has laid out for this CPU."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cache

import torch
from torch.nn.functional import linear
from torch.utils.weak import WeakIdKeyDictionary

from autospec.engine.cpu.checks import check
from autospec.engine.cpu.threads import use_threads_for
from autospec.errors import EngineError

__all__ = ["convert_weight_packed", "weight_packed_linear"]

_FLOATS = (torch.bfloat16, torch.float16, torch.float32)
_reorder = torch.ops.mkldnn._reorder_linear_weight.default  # noqa: SLF001 - its only name
_packed_linear = torch.ops.mkldnn._linear_pointwise.default  # noqa: SLF001 - its only name
# Of weights that must stay as they are: a head that is the embedding too, for the look-up, and
# those of a half type on a CPU that only packs float32.
_packed_copies: MutableMapping[torch.Tensor, torch.Tensor] = WeakIdKeyDictionary()


@cache
def _can_pack(dtype: torch.dtype) -> bool:
    if not torch._C._has_mkldnn:  # noqa: SLF001 - typed, unlike torch.backends.mkldnn
        return False
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())  # noqa: SLF001 - its only name
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())  # noqa: SLF001 - its only name
    return True


def convert_weight_packed(weight: torch.Tensor) -> torch.Tensor:
    """Lay a weight out for this CPU, once, after loading.

    Args:
        weight: ``[out, in]``, bfloat16, float16 or float32.

    Returns:
        An opaque tensor of the same shape and dtype for `weight_packed_linear`; the weight itself
        where oneDNN has no kernel for its dtype on this CPU, since one row goes fastest through it.

    Raises:
        EngineError: the weight is not a dense matrix (experts, quantized weights).
    """
    kernel = "convert_weight_packed"
    check(weight.ndim == 2, kernel, f"weight has {weight.ndim} dimensions, only 2 are supported")
    check(weight.dtype in _FLOATS, kernel, f"{weight.dtype} weights are not supported")
    if not _can_pack(weight.dtype):
        return weight.detach()
    packed: torch.Tensor = _reorder(weight.detach())
    return packed


def weight_packed_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, is_packed: bool
) -> torch.Tensor:
    """``x @ weight.T + bias``.

    Args:
        x: ``[tokens, in]``.
        weight: ``[out, in]``, of x's dtype, as `convert_weight_packed` returned it; a plain one is
            packed at its first use, and must not change afterwards.
        bias: ``[out]`` in any floating dtype, or None.
        is_packed: must be True; SGLang passes nothing else for these layers.

    Returns:
        ``[tokens, out]`` in x's dtype.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    if x.ndim != 2 or x.shape[1] != weight.shape[1] or x.dtype != weight.dtype or not is_packed:
        raise EngineError(
            f"weight_packed_linear: x {tuple(x.shape)} {x.dtype} does not fit a packed weight "
            f"{tuple(weight.shape)} {weight.dtype} (is_packed={is_packed})"
        )
    if bias is not None:
        bias = bias.to(x.dtype)
    if x.shape[0] == 0:
        return x.new_empty((0, weight.shape[0]))
    use_threads_for(x.shape[0] * weight.numel())
    if not weight.is_mkldnn:
        if not _can_pack(weight.dtype) and (x.shape[0] == 1 or not _can_pack(torch.float32)):
            return linear(x, weight, bias)
        weight = _packed_copy(weight)
    if weight.dtype == x.dtype:
        result: torch.Tensor = _packed_linear(x, weight, bias, "none", [], "")
        return result
    bias = None if bias is None else bias.to(weight.dtype)
    wide: torch.Tensor = _packed_linear(x.to(weight.dtype), weight, bias, "none", [], "")
    return wide.to(x.dtype)


def _packed_copy(weight: torch.Tensor) -> torch.Tensor:
    """A packed copy, in float32 where this CPU packs nothing narrower.

    That takes twice the memory. But PyTorch multiplies a weight of a half type that oneDNN does not
    know row by row, so that every further token costs as much as the first.
    """
    packed = _packed_copies.get(weight)
    if packed is None:
        dtype = weight.dtype if _can_pack(weight.dtype) else torch.float32
        packed = convert_weight_packed(weight.to(dtype))
        _packed_copies[weight] = packed
    return packed
