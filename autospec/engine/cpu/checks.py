"""Refusals of the CPU kernels: which kernel and argument, what it was, what would be right."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from autospec.errors import EngineError

__all__ = ["INTEGER", "check", "check_room", "check_tensor"]

INTEGER = (torch.int32, torch.int64)


def check(condition: bool, kernel: str, message: str) -> None:
    """Refuse a call.

    Raises:
        EngineError: the condition does not hold.
    """
    if not condition:
        raise EngineError(f"{kernel}: {message}")


def check_tensor(
    kernel: str,
    name: str,
    tensor: torch.Tensor,
    *,
    dtypes: Sequence[torch.dtype],
    shape: Sequence[int | None],
) -> None:
    """Refuse a tensor of another dtype, number of dimensions or size.

    Args:
        kernel: the kernel that was called.
        name: the argument.
        tensor: its value.
        dtypes: the dtypes that would be right.
        shape: the sizes that would be right; None for any.

    Raises:
        EngineError: the tensor is of another kind.
    """
    if tensor.dtype not in dtypes:
        wanted = " or ".join(str(dtype) for dtype in dtypes)
        raise EngineError(f"{kernel}: {name} is {tensor.dtype}, must be {wanted}")
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(
        want is not None and want != got for want, got in zip(shape, sizes, strict=True)
    ):
        wanted = "x".join("*" if want is None else str(want) for want in shape)
        raise EngineError(f"{kernel}: {name} has shape {sizes}, must be {wanted}")


def check_room(kernel: str, out: torch.Tensor, needed: int, dtypes: Sequence[torch.dtype]) -> None:
    """Refuse an output that is not one-dimensional, of another dtype, or too short.

    Args:
        kernel: the kernel that was called.
        out: the output.
        needed: values to be written.
        dtypes: the dtypes that would be right.

    Raises:
        EngineError: it is of another kind or too short.
    """
    check_tensor(kernel, "the output", out, dtypes=dtypes, shape=(None,))
    check(out.numel() >= needed, kernel, f"the output has room for {out.numel()} of {needed}")
