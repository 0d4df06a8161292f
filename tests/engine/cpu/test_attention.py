"""Attention against one query at a time over the positions it may see."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch

from autospec.engine.cpu.attention import decode_attention_cpu, extend_attention_cpu
from autospec.errors import EngineError

HEADS, KV_HEADS, SIZE, SLOTS, POOL = 6, 2, 16, 4096, 700
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


@dataclass
class Batch:
    """A cache with requests in it, their slots scattered."""

    k_cache: torch.Tensor
    v_cache: torch.Tensor
    table: torch.Tensor
    rows: torch.Tensor
    seq_lens: list[int]


def make_batch(seq_lens: list[int], dtype: torch.dtype, seed: int = 0) -> Batch:
    """Requests of these lengths; the unused part of the table points at slots of NaN."""
    torch.manual_seed(seed)
    k_cache = torch.randn(SLOTS, KV_HEADS, SIZE).to(dtype)
    v_cache = torch.randn(SLOTS, KV_HEADS, SIZE).to(dtype)
    slots = torch.randperm(SLOTS - 2) + 1
    k_cache[-1] = v_cache[-1] = torch.nan
    table = torch.full((len(seq_lens) + 3, POOL), SLOTS - 1, dtype=torch.int32)
    rows = torch.randperm(len(seq_lens) + 3)[: len(seq_lens)]
    used = 0
    for row, length in zip(rows.tolist(), seq_lens, strict=True):
        table[row, :length] = slots[used : used + length].int()
        used += length
    return Batch(k_cache, v_cache, table, rows, seq_lens)


def reference(
    batch: Batch,
    query: torch.Tensor,
    seen: list[list[list[int]]],
    scale: float,
    cap: float = 0.0,
) -> torch.Tensor:
    """Attention of each query over the positions it sees: ``seen[request][query]``."""
    out, at = torch.zeros(query.shape, dtype=torch.float64), 0
    for request, queries in enumerate(seen):
        for positions in queries:
            slots = batch.table[batch.rows[request], positions].long()
            keys = batch.k_cache[slots].double().repeat_interleave(HEADS // KV_HEADS, 1)
            values = batch.v_cache[slots].double().repeat_interleave(HEADS // KV_HEADS, 1)
            scores = torch.einsum("lhd,hd->hl", keys, query[at].double()) * scale
            if cap:
                scores = cap * torch.tanh(scores / cap)
            out[at] = torch.einsum("hl,lhd->hd", scores.softmax(-1), values)
            at += 1
    return out


def decode(batch: Batch, query: torch.Tensor, **changed: object) -> torch.Tensor:
    """Run the decode kernel with the keys and values in the cache already."""
    out = torch.full(query.shape, torch.nan, dtype=query.dtype)
    given = {
        "query": query,
        "k_cache": batch.k_cache,
        "v_cache": batch.v_cache,
        "k_scale": 1.0,
        "v_scale": 1.0,
        "output": out,
        "key": None,
        "value": None,
        "loc": torch.zeros(0, dtype=torch.int64),
        "attn_logits": torch.empty(0),
        "req_to_token": batch.table,
        "req_pool_indices": batch.rows,
        "seq_lens": torch.tensor(batch.seq_lens),
        "sm_scale": SIZE**-0.5,
        "logit_cap": 0.0,
        "is_cross_attn": False,
        "sliding_window_size": 0,
        "encoder_lens": None,
        "sinks": None,
    }
    decode_attention_cpu(**{**given, **changed})
    return out


def extend(
    batch: Batch, query: torch.Tensor, extend_lens: list[int], **changed: object
) -> torch.Tensor:
    """Run the extend kernel."""
    out = torch.full(query.shape, torch.nan, dtype=query.dtype)
    lengths = torch.tensor(extend_lens, dtype=torch.int32)
    given = {
        "query": query,
        "key": None,
        "value": None,
        "output": out,
        "k_buffer": batch.k_cache,
        "v_buffer": batch.v_cache,
        "k_scale": 1.0,
        "v_scale": 1.0,
        "req_to_token": batch.table,
        "req_pool_indices": batch.rows,
        "seq_lens": torch.tensor(batch.seq_lens),
        "extend_seq_lens": lengths,
        "extend_start_loc": lengths.cumsum(0).int() - lengths,
        "max_len_extend": max(extend_lens),
        "sm_scale": SIZE**-0.5,
        "logit_cap": 0.0,
        "is_cross_attn": False,
        "sliding_window_size": 0,
        "encoder_lens": None,
        "sinks": None,
        "tree_mask": None,
        "is_causal": True,
    }
    extend_attention_cpu(**{**given, **changed})
    return out


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    """Assert equality up to what the dtype can hold."""
    torch.testing.assert_close(
        got.double(), want, rtol=TOLERANCE[got.dtype], atol=TOLERANCE[got.dtype]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "seq_lens", [[1], [37], [5, 5, 5], [9, 12, 10, 17], [1, 2, 40, 300, 7, 33, 8, 650]]
)
def test_decode_attends_to_all_tokens(seq_lens: list[int], dtype: torch.dtype) -> None:
    """Each request's query sees all of its tokens, whatever the lengths of the others."""
    batch = make_batch(seq_lens, dtype)
    query = torch.randn(len(seq_lens), HEADS, SIZE).to(dtype)
    seen = [[list(range(length))] for length in seq_lens]
    close(decode(batch, query), reference(batch, query, seen, SIZE**-0.5))


@pytest.mark.parametrize("window", [1, 4, 100])
def test_decode_keeps_to_the_window(window: int) -> None:
    """A window of w leaves the last w tokens, the new one included."""
    batch = make_batch([3, 50, 21], torch.float32)
    query = torch.randn(3, HEADS, SIZE)
    seen = [[list(range(max(0, length - window), length))] for length in batch.seq_lens]
    got = decode(batch, query, sliding_window_size=window)
    close(got, reference(batch, query, seen, SIZE**-0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logits_are_capped(dtype: torch.dtype) -> None:
    """Scores pass through cap * tanh(score / cap)."""
    batch = make_batch([30, 17], dtype)
    query = torch.randn(2, HEADS, SIZE).to(dtype) * 4
    seen = [[list(range(length))] for length in batch.seq_lens]
    close(
        decode(batch, query, logit_cap=2.0, sm_scale=1.0),
        reference(batch, query, seen, 1.0, cap=2.0),
    )


def test_decode_stores_the_new_keys_and_values_first() -> None:
    """The new token's key and value are in the cache afterwards, and are attended to."""
    batch = make_batch([4, 9], torch.float32)
    loc = torch.stack(
        [batch.table[row, n - 1] for row, n in zip(batch.rows, batch.seq_lens, strict=True)]
    ).long()
    key, value = torch.randn(2, KV_HEADS * SIZE), torch.randn(2, KV_HEADS * SIZE)
    query = torch.randn(2, HEADS, SIZE)
    got = decode(batch, query, key=key, value=value, loc=loc)
    assert torch.equal(batch.k_cache[loc].flatten(1), key)
    assert torch.equal(batch.v_cache[loc].flatten(1), value)
    close(got, reference(batch, query, [[[*range(4)]], [[*range(9)]]], SIZE**-0.5))


def test_decode_notices_tables_and_lengths_changed_in_place() -> None:
    """What was laid out for one step is not used for the next when its tensors were written to."""
    batch = make_batch([6, 6], torch.float32)
    query = torch.randn(2, HEADS, SIZE)
    lengths = torch.tensor([6, 6])
    decode(batch, query, seq_lens=lengths)
    lengths -= 1
    batch.table[batch.rows[0], 0] = batch.table[batch.rows[1], 3]
    got = decode(batch, query, seq_lens=lengths)
    close(got, reference(batch, query, [[[*range(5)]], [[*range(5)]]], SIZE**-0.5))


def test_decode_works_on_inference_tensors() -> None:
    """Tensors that do not count writes are laid out anew each time."""
    with torch.inference_mode():
        batch = make_batch([6, 3], torch.float32)
        query = torch.randn(2, HEADS, SIZE)
        lengths = torch.tensor([6, 3])
        decode(batch, query, seq_lens=lengths)
        lengths -= 1
        got = decode(batch, query, seq_lens=lengths)
        close(got, reference(batch, query, [[[*range(5)]], [[*range(2)]]], SIZE**-0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("prefixes", "extend_lens"),
    [
        ([0], [1]),
        ([0], [23]),
        ([7, 0, 30], [5, 5, 5]),
        ([0, 3, 0, 40], [11, 1, 2, 6]),
        ([2, 0], [260, 0]),
    ],
)
@pytest.mark.parametrize("window", [0, 3])
def test_extend_is_causal(
    prefixes: list[int], extend_lens: list[int], window: int, dtype: torch.dtype
) -> None:
    """Each new token sees the prefix, the new ones before it and itself, within the window."""
    seq_lens = [p + e for p, e in zip(prefixes, extend_lens, strict=True)]
    batch = make_batch(seq_lens, dtype)
    query = torch.randn(sum(extend_lens), HEADS, SIZE).to(dtype)
    seen = [
        [list(range(max(0, at - window + 1) if window else 0, at + 1)) for at in range(p, p + e)]
        for p, e in zip(prefixes, extend_lens, strict=True)
    ]
    got = extend(batch, query, extend_lens, sliding_window_size=window)
    close(got, reference(batch, query, seen, SIZE**-0.5))


def random_tree(nodes: int) -> list[list[int]]:
    """For each node its ancestors and itself."""
    seen = [[0]]
    for node in range(1, nodes):
        parent = int(torch.randint(node, ()))
        seen.append([*seen[parent], node])
    return seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("prefixes", [[12], [0, 5, 90, 6, 7], [33, 33]])
@pytest.mark.parametrize("nodes", [1, 4, 9])
@pytest.mark.parametrize("window", [0, 4])
def test_extend_follows_the_tree(
    prefixes: list[int], nodes: int, window: int, dtype: torch.dtype
) -> None:
    """Each node sees the prefix, its ancestors and itself, within a window counted in depth."""
    batch = make_batch([p + nodes for p in prefixes], dtype, seed=nodes)
    trees = [random_tree(nodes) for _ in prefixes]
    mask = torch.zeros(len(prefixes), nodes, nodes, dtype=torch.bool)
    seen: list[list[list[int]]] = []
    for request, (prefix, tree) in enumerate(zip(prefixes, trees, strict=True)):
        seen.append([])
        for node, path in enumerate(tree):
            mask[request, node, path] = True
            visible = [*range(prefix), *(prefix + ancestor for ancestor in path)]
            seen[-1].append(visible[-window:] if window else visible)
    query = torch.randn(len(prefixes) * nodes, HEADS, SIZE).to(dtype)
    got = extend(
        batch,
        query,
        [nodes] * len(prefixes),
        tree_mask=mask.view(-1),
        sliding_window_size=window,
    )
    close(got, reference(batch, query, seen, SIZE**-0.5))


def test_extend_notices_a_tree_changed_in_place() -> None:
    """A mask buffer that is filled anew for each step is read anew."""
    batch = make_batch([8], torch.float32)
    query = torch.randn(2, HEADS, SIZE)
    tree = torch.tensor([True, False, True, True])
    lengths = torch.tensor([8])
    chain = extend(batch, query, [2], tree_mask=tree, seq_lens=lengths)
    tree[2] = False
    apart = extend(batch, query, [2], tree_mask=tree, seq_lens=lengths)
    assert torch.equal(chain[0], apart[0])
    close(apart[1:], reference(batch, query[1:], [[[*range(6), 7]]], SIZE**-0.5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"sinks": torch.zeros(HEADS)}, "sinks"),
        ({"encoder_lens": torch.zeros(1)}, "encoder"),
        ({"is_cross_attn": True}, "encoder"),
        ({"k_scale": 0.5}, "scales"),
        ({"seq_lens": torch.tensor([4, 4])}, "requests"),
        ({"k_cache": torch.zeros(SLOTS, KV_HEADS, SIZE, dtype=torch.bfloat16)}, "dtype"),
        ({"k_cache": torch.zeros(SLOTS, 4, SIZE)}, "does not fit"),
        ({"output": torch.zeros(2, HEADS, SIZE)}, "output"),
        ({"seq_lens": torch.tensor([POOL + 1])}, "table"),
    ],
)
def test_decode_refuses_what_it_cannot_do(changed: dict[str, object], message: str) -> None:
    """Unsupported features and wrong shapes raise an error that names them."""
    batch = make_batch([4], torch.float32)
    with pytest.raises(EngineError, match=message):
        decode(batch, torch.randn(1, HEADS, SIZE), **changed)


@pytest.mark.parametrize(
    ("extend_lens", "changed", "message"),
    [
        ([2], {"is_causal": False}, "causal"),
        ([2], {"tree_mask": torch.ones(3, dtype=torch.bool)}, "tree mask"),
        ([2], {"tree_mask": torch.ones(4)}, "tree mask"),
        ([5], {}, "queries over"),
        ([2], {"extend_start_loc": torch.zeros(2, dtype=torch.int32)}, "start"),
    ],
)
def test_extend_refuses_what_it_cannot_do(
    extend_lens: list[int], changed: dict[str, object], message: str
) -> None:
    """Unsupported features and wrong shapes raise an error that names them."""
    batch = make_batch([4], torch.float32)
    with pytest.raises(EngineError, match=message):
        extend(batch, torch.randn(sum(extend_lens), HEADS, SIZE), extend_lens, **changed)


def test_a_tree_mask_needs_equal_lengths() -> None:
    """One tree size holds for the whole batch."""
    batch = make_batch([4, 4], torch.float32)
    with pytest.raises(EngineError, match="equal extend lengths"):
        extend(
            batch,
            torch.randn(3, HEADS, SIZE),
            [2, 1],
            tree_mask=torch.ones(8, dtype=torch.bool),
        )


def test_scale_is_applied() -> None:
    """A large scale picks the best key."""
    batch = make_batch([20], torch.float32)
    query = torch.randn(1, HEADS, SIZE)
    close(
        decode(batch, query, sm_scale=math.pi),
        reference(batch, query, [[[*range(20)]]], math.pi),
    )
