"""Draft trees against trees made of Python lists."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from autospec.engine.cpu.tree import (
    build_tree_kernel_efficient_cpu,
    reconstruct_indices_from_tree_mask,
    verify_tree_greedy_cpu,
)
from autospec.errors import EngineError

BATCHES = [1, 3, 8]


def links_of(parents: list[int]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node."""
    children = [[c for c, p in enumerate(parents) if p == node] for node in range(len(parents))]
    first = [child[0] if child else -1 for child in children]
    following = [-1] * len(parents)
    for group in children:
        for child, sibling in itertools.pairwise(group):
            following[child] = sibling
    return first, following


def path_to(node: int, parents: list[int]) -> list[int]:
    """The node, its parent, and so on up to the root."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


class Buffers:
    """What the kernels write, filled with rubbish."""

    def __init__(self, requests: int, n: int, dtype: torch.dtype = torch.int64) -> None:
        self.mask = torch.ones(requests * n * n, dtype=torch.bool)
        self.positions = torch.full((requests * n,), 77, dtype=dtype)
        self.index = torch.full((requests, n), -1, dtype=dtype)
        self.first = torch.full((requests, n), -1, dtype=dtype)
        self.following = torch.full((requests, n), -1, dtype=dtype)

    def links(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Index, first child, next sibling."""
        return self.index, self.first, self.following


def check_trees(buffers: Buffers, trees: list[list[int]], seq_lens: list[int]) -> None:
    """Compare all that was written with the trees' parents."""
    n = len(trees[0])
    for request, (parents, length) in enumerate(zip(trees, seq_lens, strict=True)):
        first, following = links_of(parents)
        assert buffers.index[request].tolist() == list(range(request * n, request * n + n))
        assert buffers.first[request].tolist() == first
        assert buffers.following[request].tolist() == following
        depth = [len(path_to(node, parents)) - 1 for node in range(n)]
        positions = buffers.positions.view(-1, n)[request].tolist()
        assert positions == [length + d for d in depth]


def random_selection(
    rng: random.Random, topk: int, depth: int, n: int
) -> tuple[list[int], list[int], list[int]]:
    """A beam search's parent list, its selected candidates, and the parents of the tree.

    SGLang names no beam of a tree of one level: the root's is the only one.
    """
    parent_list, beams, base = [-1] if depth > 1 else [], [-1], 0
    candidate_parent: dict[int, int] = {}
    for level in range(depth):
        candidates = []
        for place, beam in enumerate(beams):
            for child in range(topk):
                candidates.append(base + place * topk + child)
                candidate_parent[candidates[-1]] = beam
        base += len(beams) * topk
        if level < depth - 1:
            beams = sorted(rng.sample(candidates, topk))
            parent_list += beams
    chosen: set[int] = set()
    while len(chosen) < n - 1:
        ready = [
            c for c, p in candidate_parent.items() if c not in chosen and (p == -1 or p in chosen)
        ]
        chosen.add(rng.choice(ready))
    selected = sorted(chosen)
    node = {candidate: place + 1 for place, candidate in enumerate(selected)}
    parents = [-1] + [
        0 if candidate_parent[c] == -1 else node[candidate_parent[c]] for c in selected
    ]
    return parent_list, selected, parents


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("requests", BATCHES)
@pytest.mark.parametrize(
    ("topk", "depth", "n"), [(1, 3, 4), (1, 1, 2), (4, 1, 5), (4, 3, 8), (2, 3, 11), (8, 4, 32)]
)
def test_build_makes_the_selected_tree(
    topk: int, depth: int, n: int, requests: int, dtype: torch.dtype
) -> None:
    """Masks, positions and links are those of the beam search's tree."""
    rng = random.Random(n * requests)  # noqa: S311 - no secret
    made = [random_selection(rng, topk, depth, n) for _ in range(requests)]
    seq_lens = [rng.randrange(1, 500) for _ in range(requests)]
    buffers = Buffers(requests, n, dtype)
    build_tree_kernel_efficient_cpu(
        torch.tensor([parent_list for parent_list, _, _ in made], dtype=dtype),
        torch.tensor([selected for _, selected, _ in made], dtype=dtype).view(requests, n - 1),
        torch.tensor(seq_lens, dtype=dtype),
        buffers.mask,
        buffers.positions,
        *buffers.links(),
        topk,
        depth,
        n,
        1,
    )
    trees = [parents for _, _, parents in made]
    check_trees(buffers, trees, seq_lens)
    mask = buffers.mask.view(requests, n, n)
    for request, parents in enumerate(trees):
        for node in range(n):
            seen = mask[request, node].nonzero().view(-1).tolist()
            assert seen == sorted(path_to(node, parents))


def random_parents(rng: random.Random, n: int) -> list[int]:
    """A random tree with parents before children."""
    return [-1] + [rng.randrange(node) for node in range(1, n)]


@pytest.mark.parametrize("requests", BATCHES)
@pytest.mark.parametrize("n", [1, 2, 8, 25])
def test_reconstruct_reads_the_tree_from_its_mask(requests: int, n: int) -> None:
    """Positions and links are those of the tree whose ancestors the mask shows."""
    rng = random.Random(n)  # noqa: S311 - no secret
    trees = [random_parents(rng, n) for _ in range(requests)]
    seq_lens = [rng.randrange(1, 500) for _ in range(requests)]
    buffers = Buffers(requests, n)
    mask = torch.zeros(requests, n, n, dtype=torch.bool)
    for request, parents in enumerate(trees):
        for node in range(n):
            mask[request, node, path_to(node, parents)] = True
    reconstruct_indices_from_tree_mask(
        mask.view(-1),
        torch.tensor(seq_lens),
        buffers.positions,
        *buffers.links(),
        requests,
        n,
    )
    check_trees(buffers, trees, seq_lens)


def test_reconstruct_leaves_padding_apart() -> None:
    """Nodes that see only themselves, as padding does, are nobody's children or siblings."""
    buffers = Buffers(1, 3)
    reconstruct_indices_from_tree_mask(
        torch.eye(3, dtype=torch.bool).view(-1),
        torch.tensor([9]),
        buffers.positions,
        *buffers.links(),
        1,
        3,
    )
    assert buffers.first.tolist() == [[-1, -1, -1]]
    assert buffers.following.tolist() == [[-1, -1, -1]]
    assert buffers.positions.tolist() == [9, 9, 9]


def accepted(parents: list[int], tokens: list[int], choice: list[int], steps: int) -> list[int]:
    """The greedy path: the first child that is the target's choice, and so on."""
    path = [0]
    while len(path) < steps:
        right = [
            child
            for child, parent in enumerate(parents)
            if parent == path[-1] and tokens[child] == choice[path[-1]]
        ]
        if not right:
            break
        path.append(right[0])
    return path


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("requests", BATCHES)
@pytest.mark.parametrize(("n", "steps"), [(1, 1), (4, 4), (8, 3), (24, 9)])
def test_verify_follows_the_targets_choices(
    n: int, steps: int, requests: int, dtype: torch.dtype
) -> None:
    """The accepted path, its length and the tokens on it are the greedy ones; the rest stays."""
    rng = random.Random(n + requests)  # noqa: S311 - no secret
    for _ in range(5):
        trees = [random_parents(rng, n) for _ in range(requests)]
        tokens = [[rng.randrange(3) for _ in range(n)] for _ in trees]
        choice = [[rng.randrange(3) for _ in range(n)] for _ in trees]
        links = [links_of(parents) for parents in trees]
        predicts = torch.full((requests * n,), -7, dtype=torch.int32)
        accept_index = torch.full((requests, steps), -1, dtype=torch.int32)
        accept_num = torch.full((requests,), -7, dtype=torch.int32)
        verify_tree_greedy_cpu(
            predicts,
            accept_index,
            accept_num,
            torch.tensor(tokens, dtype=dtype),
            torch.arange(requests * n, dtype=dtype).view(requests, n),
            torch.tensor([first for first, _ in links], dtype=dtype),
            torch.tensor([following for _, following in links], dtype=dtype),
            torch.tensor(choice, dtype=dtype),
        )
        for request, parents in enumerate(trees):
            path = accepted(parents, tokens[request], choice[request], steps)
            flat = [request * n + node for node in path]
            assert accept_index[request].tolist() == flat + [-1] * (steps - len(path))
            assert accept_num[request] == len(path) - 1
            wanted = [choice[request][node] if node in path else -7 for node in range(n)]
            assert predicts.view(requests, n)[request].tolist() == wanted


def test_verify_takes_candidates_of_another_integer_type() -> None:
    """Tokens that are only read may be int32 beside int64 links."""
    accept_index = torch.full((1, 2), -1, dtype=torch.int32)
    verify_tree_greedy_cpu(
        torch.zeros(2, dtype=torch.int32),
        accept_index,
        torch.zeros(1, dtype=torch.int32),
        torch.tensor([[4, 5]], dtype=torch.int32),
        torch.tensor([[0, 1]]),
        torch.tensor([[1, -1]]),
        torch.tensor([[-1, -1]]),
        torch.tensor([[5, 6]]),
    )
    assert accept_index.tolist() == [[0, 1]]


def test_build_refuses_other_mask_modes() -> None:
    """Only QLEN_ONLY masks are made."""
    buffers = Buffers(1, 2)
    with pytest.raises(EngineError, match="mask mode 0"):
        build_tree_kernel_efficient_cpu(
            torch.tensor([[-1]]),
            torch.tensor([[0]]),
            torch.tensor([3]),
            buffers.mask,
            buffers.positions,
            *buffers.links(),
            1,
            1,
            2,
            0,
        )


def test_wrong_shapes_and_dtypes_are_named() -> None:
    """An output of the wrong kind raises an error with what would be right."""
    buffers = Buffers(1, 3)
    with pytest.raises(EngineError, match=r"positions has shape \(3,\), must be 4"):
        reconstruct_indices_from_tree_mask(
            torch.ones(16, dtype=torch.bool),
            torch.tensor([1]),
            buffers.positions,
            *buffers.links(),
            1,
            4,
        )
    with pytest.raises(EngineError, match=r"accept_index is torch.int64, must be torch.int32"):
        verify_tree_greedy_cpu(
            torch.zeros(3, dtype=torch.int32),
            torch.zeros(1, 2, dtype=torch.int64),
            torch.zeros(1, dtype=torch.int32),
            torch.zeros(1, 3, dtype=torch.int64),
            *buffers.links(),
            torch.zeros(3, dtype=torch.int64),
        )
    with pytest.raises(EngineError, match="booleans"):
        reconstruct_indices_from_tree_mask(
            torch.ones(9), torch.tensor([1]), buffers.positions, *buffers.links(), 1, 3
        )
