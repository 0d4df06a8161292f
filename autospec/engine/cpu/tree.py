"""Draft trees: building, greedy verification, reading one back from its mask.

A tree of n nodes is three rows of n integers for each request: each node's flat index in the
batch, its first child and its next sibling (-1 for none). Node 0 is the root, the last token that
is already certain; a node's parent always has a smaller index.
"""

# ruff: noqa: PLR0917 - the order of the arguments is SGLang's
from __future__ import annotations

import torch

from autospec.engine.cpu.checks import INTEGER, check, check_tensor

__all__ = [
    "build_tree_kernel_efficient_cpu",
    "reconstruct_indices_from_tree_mask",
    "verify_tree_greedy_cpu",
]

_QLEN_ONLY = 1


def build_tree_kernel_efficient_cpu(
    parent_list: torch.Tensor,
    selected_index: torch.Tensor,
    verified_seq_len: torch.Tensor,
    tree_mask: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Make the trees that a draft model's beam search selected.

    Candidates are numbered level by level, topk for each beam; candidate c hangs below the beam
    ``c // topk``, and ``parent_list`` names each beam's own candidate.

    Args:
        parent_list: ``[requests, beams]``, candidate that each beam continues; entry 0 is the root.
        selected_index: ``[requests, draft_token_num - 1]``, the candidates in the tree, ascending.
        verified_seq_len: ``[requests]``, tokens before the root.
        tree_mask: ``requests * draft_token_num**2`` booleans, written: which nodes each node sees;
            a longer buffer is written at its front.
        positions: ``requests * draft_token_num``, written: position of each node.
        retrive_index: ``[requests, draft_token_num]``, written: flat index.
        retrive_next_token: the same shape, written: first child.
        retrive_next_sibling: the same shape, written: next sibling.
        topk: candidates of each beam.
        depth: levels below the root.
        draft_token_num: nodes of a tree, the root included.
        tree_mask_mode: must be 1, QLEN_ONLY.

    Raises:
        EngineError: shapes or dtypes do not fit, or another mask mode is asked for.
    """
    kernel = "build_tree_kernel_efficient_cpu"
    n, requests = draft_token_num, verified_seq_len.shape[0]
    check(tree_mask_mode == _QLEN_ONLY, kernel, f"mask mode {tree_mask_mode} must be 1, QLEN_ONLY")
    check_tensor(kernel, "parent_list", parent_list, dtypes=INTEGER, shape=(requests, None))
    check_tensor(kernel, "selected_index", selected_index, dtypes=INTEGER, shape=(requests, n - 1))
    _check_outputs(
        kernel, requests, n, positions, retrive_index, retrive_next_token, retrive_next_sibling
    )
    _check_mask(kernel, tree_mask, requests * n * n)
    parents = _parents(parent_list.long(), selected_index.long(), topk)
    node = torch.arange(n).expand(requests, n)
    # The walk ends at the root, or below a node whose parent was not selected.
    mask = torch.zeros((requests, n, n), dtype=torch.bool)
    depths = torch.zeros((requests, n), dtype=torch.int64)
    current = node
    for _ in range(depth):
        depths += current > 0
        mask.scatter_(2, current.unsqueeze(-1), True)
        current = parents.gather(1, current).clamp_(min=0)
    mask[:, :, 0] = True
    tree_mask.view(-1)[: mask.numel()].copy_(mask.view(-1))
    positions.view(requests, n).copy_(depths + verified_seq_len.unsqueeze(1))
    children = parents.unsqueeze(1) == torch.arange(n).view(1, n, 1)
    _write_links(parents, children, retrive_index, retrive_next_token, retrive_next_sibling)


def reconstruct_indices_from_tree_mask(
    tree_mask: torch.Tensor,
    verified_seq_len: torch.Tensor,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Read positions and links back from the masks of trees.

    Args:
        tree_mask: ``batch_size * draft_token_num**2`` booleans: which nodes each node sees.
        verified_seq_len: ``[batch_size]``, tokens before the root.
        positions: ``batch_size * draft_token_num``, written.
        retrive_index: ``[batch_size, draft_token_num]``, written: flat index.
        retrive_next_token: the same shape, written: first child.
        retrive_next_sibling: the same shape, written: next sibling.
        batch_size: requests.
        draft_token_num: nodes of a tree, the root included.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "reconstruct_indices_from_tree_mask"
    n = draft_token_num
    check_tensor(kernel, "verified_seq_len", verified_seq_len, dtypes=INTEGER, shape=(batch_size,))
    _check_outputs(
        kernel, batch_size, n, positions, retrive_index, retrive_next_token, retrive_next_sibling
    )
    size = batch_size * n * n
    _check_mask(kernel, tree_mask, size)
    ancestors = tree_mask.view(-1)[:size].view(batch_size, n, n).tril(-1)
    positions.view(batch_size, n).copy_(ancestors.sum(-1) + verified_seq_len.unsqueeze(1))
    parents = torch.where(ancestors, torch.arange(n), -1).amax(-1)
    # The first descendant of a node is its first child.
    descendants = ancestors.transpose(1, 2)
    _write_links(parents, descendants, retrive_index, retrive_next_token, retrive_next_sibling)


def verify_tree_greedy_cpu(
    predicts: torch.Tensor,
    accept_index: torch.Tensor,
    accept_token_num: torch.Tensor,
    candidates: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
    target_predict: torch.Tensor,
) -> None:
    """Follow each tree from its root as long as a child is what the target would say.

    The walk is a chain of dependent look-ups over a few dozen integers for each request, so it
    runs on Python lists: a handful of tensor operations for each node would take longer.

    Args:
        predicts: ``requests * n`` int32, written at the flat indices of accepted nodes: what the
            target says after each.
        accept_index: ``[requests, steps]`` int32, written: flat indices of the accepted nodes, the
            root first; entries behind them stay as they are.
        accept_token_num: ``[requests]`` int32, written: accepted nodes without the root.
        candidates: ``[requests, n]``, token of each node.
        retrive_index: ``[requests, n]``, flat index of each node.
        retrive_next_token: ``[requests, n]``, first child.
        retrive_next_sibling: ``[requests, n]``, next sibling.
        target_predict: ``requests * n``, the target's choice after each node.

    Raises:
        EngineError: shapes or dtypes do not fit.
    """
    kernel = "verify_tree_greedy_cpu"
    check_tensor(kernel, "candidates", candidates, dtypes=INTEGER, shape=(None, None))
    requests, n = candidates.shape
    for name, links in (
        ("retrive_index", retrive_index),
        ("retrive_next_token", retrive_next_token),
        ("retrive_next_sibling", retrive_next_sibling),
    ):
        check_tensor(kernel, name, links, dtypes=INTEGER, shape=(requests, n))
    int32 = (torch.int32,)
    check_tensor(kernel, "accept_index", accept_index, dtypes=int32, shape=(requests, None))
    check_tensor(kernel, "accept_token_num", accept_token_num, dtypes=int32, shape=(requests,))
    check_tensor(kernel, "predicts", predicts.view(-1), dtypes=int32, shape=(None,))
    check_tensor(
        kernel, "target_predict", target_predict.view(-1), dtypes=INTEGER, shape=(requests * n,)
    )
    choice = target_predict.view(-1).tolist()
    steps = accept_index.shape[1]
    trees = zip(
        candidates.tolist(),
        retrive_index.tolist(),
        retrive_next_token.tolist(),
        retrive_next_sibling.tolist(),
        strict=True,
    )
    paths = [_greedy_path(*tree, choice, steps) for tree in trees]
    flat = [index for path in paths for index in path]
    row = [request for request, path in enumerate(paths) for _ in path]
    column = [place for path in paths for place in range(len(path))]
    accept_index[row, column] = torch.tensor(flat, dtype=torch.int32)
    accept_token_num.copy_(torch.tensor([len(path) - 1 for path in paths]))
    predicts.view(-1)[flat] = torch.tensor([choice[index] for index in flat], dtype=torch.int32)


def _greedy_path(
    tokens: list[int],
    index: list[int],
    first_child: list[int],
    next_sibling: list[int],
    choice: list[int],
    steps: int,
) -> list[int]:
    """Flat indices of the accepted nodes of one tree, the root first."""
    path = [index[0]]
    node = first_child[0]
    while node >= 0 and len(path) < steps:
        if tokens[node] == choice[path[-1]]:
            path.append(index[node])
            node = first_child[node]
        else:
            node = next_sibling[node]
    return path


def _parents(parent_list: torch.Tensor, selected_index: torch.Tensor, topk: int) -> torch.Tensor:
    """``[requests, n]``: parent node; -1 for the root and where the parent was not selected."""
    requests = parent_list.shape[0]
    if not parent_list.shape[1]:
        # A tree of one level has the root's beam alone, and SGLang then names none.
        parent_list = parent_list.new_full((requests, 1), -1)
    beam = selected_index // topk
    parent_candidate = parent_list.gather(1, beam)
    matches = parent_candidate.unsqueeze(2) == selected_index.unsqueeze(1)
    position = torch.where(matches.any(-1), matches.byte().argmax(-1) + 1, -1)
    below_root = torch.where(beam == 0, 0, position)
    return torch.cat((torch.full((requests, 1), -1), below_root), 1)


def _write_links(
    parents: torch.Tensor,
    children: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
) -> None:
    """Write flat indices, first children and next siblings.

    Args:
        parents: ``[requests, n]``, -1 for none.
        children: ``[requests, n, n]`` booleans: whether the second node hangs below the first.
        retrive_index: written.
        retrive_next_token: written.
        retrive_next_sibling: written.
    """
    requests, n = parents.shape
    node = torch.arange(n)
    first_child = torch.where(children, node, n).amin(-1)
    is_sibling = (parents.unsqueeze(1) == parents.unsqueeze(2)) & (node > node.unsqueeze(1))
    is_sibling &= (parents >= 0).unsqueeze(2)
    next_sibling = torch.where(is_sibling, node, n).amin(-1)
    retrive_index.copy_(torch.arange(requests * n).view(requests, n))
    retrive_next_token.copy_(torch.where(first_child < n, first_child, -1))
    retrive_next_sibling.copy_(torch.where(next_sibling < n, next_sibling, -1))


def _check_mask(kernel: str, tree_mask: torch.Tensor, size: int) -> None:
    fits = tree_mask.dtype == torch.bool and tree_mask.numel() >= size
    check(
        fits,
        kernel,
        f"tree_mask is {tree_mask.numel()} of {tree_mask.dtype}, must be {size} booleans",
    )


def _check_outputs(
    kernel: str,
    requests: int,
    n: int,
    positions: torch.Tensor,
    retrive_index: torch.Tensor,
    retrive_next_token: torch.Tensor,
    retrive_next_sibling: torch.Tensor,
) -> None:
    check_tensor(kernel, "positions", positions.view(-1), dtypes=INTEGER, shape=(requests * n,))
    for name, links in (
        ("retrive_index", retrive_index),
        ("retrive_next_token", retrive_next_token),
        ("retrive_next_sibling", retrive_next_sibling),
    ):
        check_tensor(kernel, name, links, dtypes=INTEGER, shape=(requests, n))
