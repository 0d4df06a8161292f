"""Small moves of tokens between the steps of speculation."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from autospec.engine.cpu.checks import INTEGER, check_room, check_tensor

__all__ = [
    "Integers",
    "expand",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
]

Integers: TypeAlias = NDArray[np.integer]

_INT32, _INT64 = (torch.int32,), (torch.int64,)


def fill_bonus_tokens_cpu(
    accept_tokens: torch.Tensor,
    accept_lens: torch.Tensor,
    bonus_tokens: torch.Tensor,
    accept_stride: int,
) -> None:
    """The last accepted token of each request.

    Args:
        accept_tokens: ``requests * accept_stride`` int32.
        accept_lens: ``[requests]`` int32, accepted tokens of each, the bonus token included.
        bonus_tokens: ``[requests]`` int32, written.
        accept_stride: room for each request in accept_tokens.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "fill_bonus_tokens_cpu"
    requests = accept_lens.shape[0]
    check_tensor(kernel, "accept_lens", accept_lens, dtypes=_INT32, shape=(None,))
    flat = accept_tokens.view(-1)
    check_tensor(kernel, "accept_tokens", flat, dtypes=_INT32, shape=(requests * accept_stride,))
    check_tensor(kernel, "bonus_tokens", bonus_tokens, dtypes=_INT32, shape=(requests,))
    last = (accept_lens.long() - 1).unsqueeze(1)
    bonus_tokens.copy_(flat.view(requests, accept_stride).gather(1, last).view(-1))


def fill_accept_out_cache_loc_cpu(
    accept_index: torch.Tensor, out_cache_loc: torch.Tensor, accept_out_cache_loc: torch.Tensor
) -> None:
    """The slots of the accepted tokens, in order.

    Args:
        accept_index: indices into out_cache_loc, -1 where nothing was accepted.
        out_cache_loc: int64 slots of all draft tokens.
        accept_out_cache_loc: int64, written at its front.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "fill_accept_out_cache_loc_cpu"
    index = accept_index.view(-1)
    check_tensor(kernel, "accept_index", index, dtypes=INTEGER, shape=(None,))
    check_tensor(kernel, "out_cache_loc", out_cache_loc, dtypes=_INT64, shape=(None,))
    accepted = out_cache_loc.index_select(0, index[index >= 0])
    check_room(kernel, accept_out_cache_loc, accepted.numel(), _INT64)
    accept_out_cache_loc[: accepted.numel()] = accepted


def rotate_input_ids_cpu(
    input_ids: torch.Tensor,
    extend_start_loc: torch.Tensor,
    extend_seq_lens: torch.Tensor,
    topk_index: torch.Tensor,
    select_index: torch.Tensor | None,
) -> None:
    """Shift each request's tokens left by one and append a new one, in place.

    Args:
        input_ids: ``[tokens]``, the requests one after another, written.
        extend_start_loc: ``[requests]``, first token of each.
        extend_seq_lens: ``[requests]``, tokens of each; 0 leaves a request alone.
        topk_index: one new token for each request.
        select_index: ``[requests]``, where the new token goes; None for each request's last place.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "rotate_input_ids_cpu"
    requests = extend_seq_lens.shape[0]
    check_tensor(kernel, "input_ids", input_ids, dtypes=INTEGER, shape=(None,))
    check_tensor(kernel, "extend_start_loc", extend_start_loc, dtypes=INTEGER, shape=(requests,))
    check_tensor(kernel, "topk_index", topk_index.view(-1), dtypes=INTEGER, shape=(requests,))
    tokens, starts, lengths = input_ids.numpy(), extend_start_loc.numpy(), extend_seq_lens.numpy()
    _, to = expand(np.arange(requests), starts, (lengths - 1).clip(min=0))
    tokens[to] = tokens[to + 1]
    place = starts + lengths - 1 if select_index is None else select_index.numpy()
    filled = lengths > 0
    tokens[place[filled]] = topk_index.view(-1).numpy()[filled]


def expand(rows: Integers, starts: Integers, lengths: Integers) -> tuple[Integers, Integers]:
    """Each row repeated by its length, and the numbers from each start on.

    Args:
        rows: ``[requests]``.
        starts: ``[requests]``, first number of each.
        lengths: ``[requests]``, how many.

    Returns:
        Two arrays ``[sum(lengths)]``. Arrays, since at these sizes PyTorch takes several times as
        long; for any ``repeat_interleave`` it wakes its other threads.
    """
    before = lengths.cumsum() - lengths
    row = rows.repeat(lengths)
    return row, np.arange(row.size) + (starts - before).repeat(lengths)
