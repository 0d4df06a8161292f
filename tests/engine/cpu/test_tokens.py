"""Moves of tokens against plain loops."""

from __future__ import annotations

import pytest
import torch

from autospec.engine.cpu.tokens import (
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from autospec.errors import EngineError


@pytest.mark.parametrize("requests", [0, 1, 7])
def test_the_bonus_token_is_the_last_accepted(requests: int) -> None:
    """Each request's token at its accept length less one."""
    tokens = torch.randint(0, 100, (requests, 5), dtype=torch.int32)
    lengths = torch.randint(1, 6, (requests,), dtype=torch.int32)
    bonus = torch.zeros(requests, dtype=torch.int32)
    fill_bonus_tokens_cpu(tokens.view(-1), lengths, bonus, 5)
    want = [tokens[i, n - 1].item() for i, n in enumerate(lengths.tolist())]
    assert bonus.tolist() == want


def test_accepted_slots_are_packed_in_order() -> None:
    """Slots of accepted tokens come first, in order; what is behind them stays."""
    out = torch.full((6,), -9)
    fill_accept_out_cache_loc_cpu(
        torch.tensor([[0, 2, -1], [3, -1, -1]], dtype=torch.int32),
        torch.tensor([10, 11, 12, 13, 14, 15]),
        out,
    )
    assert out.tolist() == [10, 12, 13, -9, -9, -9]


@pytest.mark.parametrize("selected", [False, True])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_tokens_shift_left_by_one(selected: bool, dtype: torch.dtype) -> None:
    """Each request loses its first token and gains a new one at its end, or where selected."""
    lengths = [3, 0, 1, 5]
    starts = [0, 3, 3, 4]
    ids = torch.arange(10, 19, dtype=dtype)
    new = torch.tensor([[90], [91], [92], [93]])
    select = torch.tensor([1, 0, 3, 6]) if selected else None
    want = ids.tolist()
    for request, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        if length:
            want[start : start + length - 1] = want[start + 1 : start + length]
            place = start + length - 1 if select is None else int(select[request])
            want[place] = int(new[request])
    rotate_input_ids_cpu(ids, torch.tensor(starts).int(), torch.tensor(lengths).int(), new, select)
    assert ids.tolist() == want


def test_wrong_kinds_are_refused() -> None:
    """Shapes and dtypes that do not fit are named."""
    with pytest.raises(EngineError, match=r"accept_tokens has shape \(4,\), must be 6"):
        fill_bonus_tokens_cpu(
            torch.zeros(4, dtype=torch.int32),
            torch.ones(2, dtype=torch.int32),
            torch.zeros(2, dtype=torch.int32),
            3,
        )
    with pytest.raises(EngineError, match="room for 0 of 1"):
        fill_accept_out_cache_loc_cpu(
            torch.tensor([0]), torch.tensor([5]), torch.zeros(0, dtype=torch.int64)
        )
    with pytest.raises(EngineError, match="topk_index"):
        rotate_input_ids_cpu(
            torch.arange(3), torch.tensor([0]), torch.tensor([3]), torch.tensor([1, 2]), None
        )
