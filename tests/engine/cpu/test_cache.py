"""Cache slots and copies against plain loops."""

from __future__ import annotations

import pytest
import torch

from autospec.engine.cpu.cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    store_cache_cpu,
)
from autospec.errors import EngineError

ROWS, POOL = 12, 40
BATCHES = [0, 1, 5, 11]


def make_table() -> torch.Tensor:
    """A token table in which every entry differs."""
    return torch.randperm(ROWS * POOL).int().view(ROWS, POOL)


def make_ranges(requests: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Distinct rows, and a range in each, some empty."""
    rows = torch.randperm(ROWS)[:requests]
    starts = torch.randint(0, POOL, (requests,), dtype=torch.int32)
    ends = torch.minimum(starts + torch.randint(0, 9, (requests,)), torch.tensor(POOL)).int()
    return rows, starts, ends


@pytest.mark.parametrize("requests", BATCHES)
def test_assigned_ranges_hold_the_slots_in_order(requests: int) -> None:
    """Each request's range takes the next slots; nothing else changes."""
    torch.manual_seed(requests)
    table, (rows, starts, ends) = make_table(), make_ranges(requests)
    slots = torch.randint(1000, 9000, (int((ends - starts).sum()),))
    want, used = table.clone(), 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        want[row, start:end] = slots[used : used + end - start].int()
        used += end - start
    assign_req_to_token_pool_cpu(rows, table, starts, ends, slots, POOL)
    assert torch.equal(table, want)


@pytest.mark.parametrize("requests", BATCHES)
def test_ranges_are_read_in_order(requests: int) -> None:
    """The output holds each request's range, one after another, and keeps its rest."""
    torch.manual_seed(requests)
    table, (rows, starts, ends) = make_table(), make_ranges(requests)
    out = torch.full((int((ends - starts).sum()) + 2,), -5)
    want = [
        entry
        for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True)
        for entry in table[row, start:end].tolist()
    ]
    assign_extend_cache_locs_cpu(rows, table, starts, ends, out, POOL)
    assert out.tolist() == [*want, -5, -5]


@pytest.mark.parametrize("requests", [1, 6])
@pytest.mark.parametrize(("topk", "steps"), [(1, 3), (4, 2)])
def test_draft_slots_stand_behind_the_tokens(requests: int, topk: int, steps: int) -> None:
    """Each request gets the topk * steps entries behind its tokens."""
    table, rows = make_table(), torch.randperm(ROWS)[:requests]
    seq_lens = torch.randint(1, POOL - topk * steps, (requests,))
    out = torch.zeros(requests * topk * steps, dtype=torch.int64)
    assign_draft_cache_locs_contiguous_cpu(rows, table, seq_lens, out, POOL, topk, steps)
    want = [
        entry
        for row, length in zip(rows.tolist(), seq_lens.tolist(), strict=True)
        for entry in table[row, length : length + topk * steps].tolist()
    ]
    assert out.tolist() == want


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("requests", [1, 6])
@pytest.mark.parametrize(("topk", "steps"), [(1, 3), (4, 2), (3, 5)])
def test_each_branch_has_its_own_table_row(
    requests: int, topk: int, steps: int, dtype: torch.dtype
) -> None:
    """A branch's row is the request's tokens, then the branch's own slots."""
    table, rows = make_table(), torch.randperm(ROWS)[:requests]
    seq_lens = torch.randint(1, POOL - topk * steps, (requests,), dtype=dtype)
    got = build_draft_decode_metadata_cpu(table, rows, seq_lens, topk, steps, POOL)
    assert got.shape == (requests * topk, POOL)
    for request, (row, length) in enumerate(zip(rows.tolist(), seq_lens.tolist(), strict=True)):
        for branch in range(topk):
            first = length + branch * steps
            want = [*table[row, :length].tolist(), *table[row, first : first + steps].tolist()]
            assert got[request * topk + branch, : length + steps].tolist() == want


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "size"), [(2, 16), (1, 3)])
def test_rows_are_copied_in_every_buffer(heads: int, size: int, dtype: torch.dtype) -> None:
    """Rows are read before any is written, in every buffer, by its own row length."""
    buffers = [torch.randn(50, heads, size * (i + 1)).to(dtype) for i in range(4)]
    want = [buffer.clone() for buffer in buffers]
    source, target = torch.tensor([3, 4, 5, 30]), torch.tensor([2, 3, 4, 49])
    for buffer in want:
        buffer[target] = buffer[source].clone()
    copy_all_layer_kv_cache_cpu(
        torch.tensor([buffer.data_ptr() for buffer in buffers], dtype=torch.uint64),
        torch.tensor([buffer[0].nbytes for buffer in buffers]),
        target,
        source,
    )
    for buffer, wanted in zip(buffers, want, strict=True):
        assert torch.equal(buffer, wanted)


@pytest.mark.parametrize("rows", [[], [3], [5, 2, 0]])
def test_rows_that_stay_are_not_copied(rows: list[int]) -> None:
    """Nothing is touched, not even the addresses; the two integer types count as equal."""
    kept = torch.tensor(rows, dtype=torch.int64)
    for target in (kept, kept.int()):
        copy_all_layer_kv_cache_cpu(torch.tensor([1]), torch.tensor([8]), target, kept)


def test_negative_rows_are_refused() -> None:
    """A row before the buffer raises an error instead of touching memory."""
    with pytest.raises(EngineError, match="row -1 is negative"):
        copy_all_layer_kv_cache_cpu(
            torch.tensor([1]), torch.tensor([8]), torch.tensor([-1]), torch.tensor([2])
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_and_values_are_stored_at_their_slots(dtype: torch.dtype) -> None:
    """Each token's row stands at its slot; others keep theirs."""
    k_cache, v_cache = torch.zeros(9, 2, 4, dtype=dtype), torch.zeros(9, 2, 4, dtype=dtype)
    k, v = torch.randn(3, 8).to(dtype), torch.randn(3, 2, 4).to(dtype)
    store_cache_cpu(k, v, k_cache, v_cache, torch.tensor([7, 0, 2]), 8)
    assert torch.equal(k_cache[[7, 0, 2]].flatten(1), k)
    assert torch.equal(v_cache[[7, 0, 2]], v)
    assert k_cache[[1, 3, 4, 5, 6, 8]].abs().sum() == 0


def test_rows_of_another_kind_are_refused() -> None:
    """Rows of another width or dtype than the cache raise an error."""
    cache = torch.zeros(9, 2, 4)
    slots = torch.tensor([1, 2])
    with pytest.raises(EngineError, match=r"k .* does not fit"):
        store_cache_cpu(torch.zeros(2, 6), torch.zeros(2, 8), cache, cache, slots, 8)
    half = torch.zeros(2, 8, dtype=torch.bfloat16)
    with pytest.raises(EngineError, match=r"v .* does not fit"):
        store_cache_cpu(torch.zeros(2, 8), half, cache, cache, slots, 8)


def test_ranges_outside_the_table_are_refused() -> None:
    """A range past the end of a row, or one that ends before it starts, raises an error."""
    table, row = make_table(), torch.tensor([0])
    out = torch.zeros(99, dtype=torch.int64)
    for start, end in ((POOL - 1, POOL + 1), (5, 4)):
        with pytest.raises(EngineError, match="leave"):
            assign_extend_cache_locs_cpu(
                row, table, torch.tensor([start]), torch.tensor([end]), out, POOL
            )
    with pytest.raises(EngineError, match="do not fit behind"):
        build_draft_decode_metadata_cpu(table, row, torch.tensor([POOL - 3]), 2, 2, POOL)


def test_an_output_too_short_is_refused() -> None:
    """The room an output has and would need are named."""
    with pytest.raises(EngineError, match="room for 2 of 3"):
        assign_extend_cache_locs_cpu(
            torch.tensor([0]),
            make_table(),
            torch.tensor([0]),
            torch.tensor([3]),
            torch.zeros(2, dtype=torch.int64),
            POOL,
        )
