"""Threads and ranks of a server process."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from autospec.engine.cpu.cores import physical_cores
from autospec.engine.cpu.threads import init_cpu_threads_env, initialize, use_threads_for
from autospec.errors import EngineError


@pytest.mark.parametrize("asked", ["1", "100000", "", "x"])
def test_threads_follow_the_environment(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """OMP_NUM_THREADS decides, up to the number of cores."""
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    try:
        init_cpu_threads_env("0-1")
        assert torch.get_num_threads() == (1 if asked == "1" else physical_cores())
    finally:
        torch.set_num_threads(before)


def test_small_work_runs_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads serve large work only, and come back after small work."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    init_cpu_threads_env("0-1")
    many = torch.get_num_threads()
    for products, threads in ((8 * 576 * 960, 1), (4096 * 4096, many), (64, 1)):
        use_threads_for(products)
        assert torch.get_num_threads() == threads


def test_tied_heads_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """From initialize() on, a loaded embedding is one whose head is packed."""

    class Method:
        def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
            """As in SGLang: nothing."""

    embeddings = types.SimpleNamespace(UnquantizedEmbeddingMethod=Method)
    monkeypatch.setitem(sys.modules, "sglang.srt.layers.quantization.unquant", embeddings)
    initialize(1, 0)
    layer = torch.nn.Embedding(4, 4)
    Method().process_weights_after_loading(layer)
    assert layer.use_intel_amx_backend


def test_one_rank_only() -> None:
    """Tensor parallelism is refused by its size."""
    initialize(1, 0)
    with pytest.raises(EngineError, match="tensor parallel size 2"):
        initialize(2, 0)
