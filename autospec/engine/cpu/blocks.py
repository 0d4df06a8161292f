"""Which queries attend to which cached keys: the part of attention that all layers share.

Requests of similar length are attended together as one padded block, so that no kernel loops over
requests and no block is more than about half padding. A block list depends only on lengths, the
token table and the mask, so it is made by the first layer of a forward pass and found by the rest.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

import torch

from autospec.engine.cpu.checks import INTEGER, check, check_tensor

__all__ = ["Block", "Layout", "cached_blocks", "make_blocks"]

# Bounds of one block, so that padding and masks stay small beside the weights: keys gathered, and
# pairs of query and key masked. A prompt is cut into this many queries.
_MAX_KEYS = 1 << 16
_MAX_PAIRS = 1 << 20
_QUERY_CHUNK = 256
_MAX_CACHED = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the queries and the cached keys of a batch are.

    Attributes:
        req_to_token: ``[rows, pool_len]``, the cache slot of each token of each pool row.
        req_pool_indices: ``[requests]``, the pool row of each request.
        seq_lens: ``[requests]``, keys of each request, its queries' own included.
        query_lens: ``[requests]``, queries of each request, its last tokens; None for one each.
        query_starts: ``[requests]``, row of a request's first query; None with query_lens.
        tree_mask: ``[requests * n * n]`` booleans over the last n tokens, for n queries each: entry
            (i, j) tells whether query i sees token j. None for causal order.
        window: keys a query sees, counting back from itself; 0 for all.
    """

    req_to_token: torch.Tensor
    req_pool_indices: torch.Tensor
    seq_lens: torch.Tensor
    query_lens: torch.Tensor | None = None
    query_starts: torch.Tensor | None = None
    tree_mask: torch.Tensor | None = None
    window: int = 0

    def uniform_queries(self) -> int:
        """Queries of every request.

        Raises:
            EngineError: they differ.
        """
        counts = set() if self.query_lens is None else set(self.query_lens.tolist())
        check(len(counts) == 1, "extend_attention_cpu", "a tree mask needs equal extend lengths")
        return int(counts.pop())

    def tensors(self) -> list[torch.Tensor]:
        """The tensors whose content decides the blocks."""
        parts = (
            self.req_to_token,
            self.req_pool_indices,
            self.seq_lens,
            self.query_lens,
            self.query_starts,
            self.tree_mask,
        )
        return [part for part in parts if part is not None]


@dataclass(frozen=True, slots=True)
class Block:
    """Requests that are attended together.

    Attributes:
        rows: ``[batch * queries]``, the query rows.
        slots: ``[batch * keys]``, the cache slots of the keys, padded with slot 0.
        mask: ``[batch, 1, groups * queries, keys]``, added to the scores; None when all is seen.
        batch: requests in the block.
        queries: queries of each, padded by repeating a request's last.
        keys: keys of each, padded.
        covers_all: whether the rows are all query rows in order.
    """

    rows: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor | None
    batch: int
    queries: int
    keys: int
    covers_all: bool = False


@dataclass(frozen=True, slots=True)
class _Unit:
    """A stretch of queries of one request, with the keys up to the last of them."""

    request: int
    keys: int
    queries: int
    start: int


_cache: OrderedDict[tuple[object, ...], tuple[list[torch.Tensor], list[Block]]] = OrderedDict()


def cached_blocks(layout: Layout, groups: int, dtype: torch.dtype) -> list[Block]:
    """`make_blocks`, or what it made for the same tensors with the same content.

    Sameness is identity plus PyTorch's count of in-place writes. The cache holds the tensors, so
    that an identity cannot be taken by another tensor.
    """
    tensors = layout.tensors()
    if any(tensor.is_inference() for tensor in tensors):  # these do not count writes
        return make_blocks(layout, groups, dtype)
    versions = tuple((id(tensor), tensor._version) for tensor in tensors)  # noqa: SLF001 - its name
    shape = (layout.query_lens is None, layout.tree_mask is None, layout.window, groups, dtype)
    key = (*versions, *shape)
    found = _cache.get(key)
    if found is None:
        found = (tensors, make_blocks(layout, groups, dtype))
        _cache[key] = found
        if len(_cache) > _MAX_CACHED:
            _cache.popitem(last=False)
    return found[1]


def make_blocks(layout: Layout, groups: int, dtype: torch.dtype) -> list[Block]:
    """Lay a batch out as blocks.

    Args:
        layout: the batch.
        groups: query heads for each key head; the mask repeats its rows that often.
        dtype: of the mask.

    Raises:
        EngineError: lengths and table do not fit.
    """
    _check_lengths(layout)
    keys = layout.seq_lens.tolist()
    queries = [1] * len(keys) if layout.query_lens is None else layout.query_lens.tolist()
    if layout.tree_mask is not None and set(queries) == {1}:
        # Trees of a node alone: it sees itself and all before it, as in plain decoding.
        layout = replace(layout, tree_mask=None)
    starts = range(len(keys)) if layout.query_starts is None else layout.query_starts.tolist()
    longest = layout.req_to_token.shape[1]
    for key_count, query_count in zip(keys, queries, strict=True):
        check(
            0 <= query_count <= key_count <= longest,
            "attention",
            f"{query_count} queries over {key_count} keys do not fit a table of {longest} tokens",
        )
    requests = zip(range(len(keys)), keys, queries, starts, strict=True)
    units = [
        unit
        for request, key_count, query_count, start in requests
        for unit in _units(request, key_count, query_count, start, layout.tree_mask is not None)
    ]
    blocks = [_block(layout, group, groups, dtype) for group in _similar(units)]
    if len(blocks) == 1 and torch.equal(blocks[0].rows, torch.arange(sum(queries))):
        return [replace(blocks[0], covers_all=True)]
    return blocks


def _check_lengths(layout: Layout) -> None:
    for name, tensor in (("extend_seq_lens", layout.query_lens), ("start", layout.query_starts)):
        if tensor is not None:
            shape = tuple(layout.seq_lens.shape)
            check_tensor("extend_attention_cpu", name, tensor, dtypes=INTEGER, shape=shape)


def _units(request: int, keys: int, queries: int, start: int, has_tree: bool) -> list[_Unit]:
    if has_tree or queries <= _QUERY_CHUNK:
        return [_Unit(request, keys, queries, start)] if queries else []
    return [
        _Unit(
            request,
            keys - queries + min(first + _QUERY_CHUNK, queries),
            min(_QUERY_CHUNK, queries - first),
            start + first,
        )
        for first in range(0, queries, _QUERY_CHUNK)
    ]


def _similar(units: list[_Unit]) -> list[list[_Unit]]:
    """Cut the units into lists whose lengths differ by a factor of 2 at most."""
    if not units:
        return []
    if _fits(units):
        return [units]
    groups: list[list[_Unit]] = [[]]
    for unit in sorted(units, key=lambda u: (u.queries, u.keys), reverse=True):
        if not _fits([*groups[-1], unit]):
            groups.append([])
        groups[-1].append(unit)
    return groups


def _fits(units: list[_Unit]) -> bool:
    if len(units) == 1:
        return True
    most_keys, most_queries = max(u.keys for u in units), max(u.queries for u in units)
    return (
        most_keys <= 2 * min(u.keys for u in units)
        and most_queries <= 2 * min(u.queries for u in units)
        and most_keys * len(units) <= _MAX_KEYS
        and most_keys * most_queries * len(units) <= _MAX_PAIRS
    )


def _block(layout: Layout, units: list[_Unit], groups: int, dtype: torch.dtype) -> Block:
    keys, queries = max(u.keys for u in units), max(u.queries for u in units)
    requests = torch.tensor([u.request for u in units])
    key_counts = torch.tensor([u.keys for u in units]).unsqueeze(1)
    query_counts = torch.tensor([u.queries for u in units]).unsqueeze(1)
    starts = torch.tensor([u.start for u in units]).unsqueeze(1)
    in_unit = torch.arange(queries).minimum(query_counts - 1)
    rows = (starts + in_unit).view(-1)
    table = layout.req_to_token[:, :keys].index_select(0, layout.req_pool_indices[requests])
    slots = table.masked_fill_(torch.arange(keys) >= key_counts, 0).view(-1)
    prefix = key_counts - query_counts
    if layout.tree_mask is None:
        seen = _window(layout.window, prefix + in_unit, torch.arange(keys).view(1, 1, keys))
    else:
        seen = _tree(layout, layout.tree_mask, requests, prefix, keys)
    return Block(
        rows=rows,
        slots=slots,
        mask=None if bool(seen.all()) else _additive(seen, groups, dtype),
        batch=len(units),
        queries=queries,
        keys=keys,
    )


def _window(window: int, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """``[batch, queries, keys]``: keys at positions that queries at ``[batch, queries]`` see."""
    query = query.unsqueeze(-1)
    seen = key <= query
    return seen & (key > query - window) if window > 0 else seen


def _tree(
    layout: Layout, mask: torch.Tensor, requests: torch.Tensor, prefix: torch.Tensor, keys: int
) -> torch.Tensor:
    """``[batch, queries, keys]``: the prefix within the window, and the tree's own tokens."""
    queries = layout.uniform_queries()
    size = layout.seq_lens.numel() * queries * queries
    check(
        mask.dtype == torch.bool and mask.numel() >= size,
        "extend_attention_cpu",
        f"the tree mask is {mask.numel()} of {mask.dtype}, must be {size} booleans, one for each "
        f"pair of the {queries} draft tokens of each request",
    )
    tree = mask.view(-1)[:size].view(-1, queries, queries)[requests]
    # A node's position is the prefix plus its depth, whatever row it stands in.
    depth = tree.sum(-1) - 1
    row = torch.arange(keys) - prefix
    column = row.clamp(0, queries - 1).unsqueeze(1).expand(-1, queries, -1)
    inside = ((row >= 0) & (row < queries)).unsqueeze(1)
    node_position = (prefix + depth).gather(1, column[:, 0])
    position = torch.where(inside[:, 0], node_position, torch.arange(keys))
    seen = torch.where(inside, tree.gather(2, column), (row < 0).unsqueeze(1))
    return seen & _window(layout.window, prefix + depth, position.unsqueeze(1))


def _additive(seen: torch.Tensor, groups: int, dtype: torch.dtype) -> torch.Tensor:
    batch, queries, keys = seen.shape
    mask = torch.zeros((batch, 1, queries, keys), dtype=dtype)
    mask.masked_fill_(~seen.unsqueeze(1), -torch.inf)
    return mask.expand(-1, groups, -1, -1).reshape(batch, 1, groups * queries, keys)
