"""Output heads that are the input embedding too."""

from __future__ import annotations

import sys

import torch

__all__ = ["pack_tied_heads"]

_EMBEDDINGS = "sglang.srt.layers.quantization.unquant"


def pack_tied_heads() -> None:
    """Let SGLang run a tied head through ``weight_packed_linear``, as it runs every other head.

    It packs only heads with a weight of their own; a tied one would go through a plain product,
    which takes twice as long and is a seventh of a small model's step.
    """
    embeddings = sys.modules.get(_EMBEDDINGS)
    if embeddings is not None:
        embeddings.UnquantizedEmbeddingMethod.process_weights_after_loading = _mark


def _mark(_method: object, layer: torch.nn.Module) -> None:
    vars(layer)["use_intel_amx_backend"] = True
