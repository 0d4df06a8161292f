"""The one speculative kernel that SGLang imports from this submodule."""

from __future__ import annotations

from autospec.engine.cpu.tree import reconstruct_indices_from_tree_mask

__all__ = ["reconstruct_indices_from_tree_mask"]
