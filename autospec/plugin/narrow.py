"""A second set of target graphs, for steps that verify one token. Written for CUDA.

A step whose width differs from the captured one runs without a graph, which would cost more than
it saves. This is built as SGLang's adaptive EAGLE worker builds one per depth
(``srt/speculative/eagle_worker_v2.py``, ``build_adaptive_runtime_state``). It has not been run on
a GPU.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.runtime_context import get_context, get_device, get_spec

from autospec.errors import ConfigError

__all__ = ["NarrowTarget"]


class NarrowTarget:
    """The target's attention and graphs at width 1, to be put in place for one step at a time."""

    def __init__(self, model_runner: Any) -> None:
        """Capture the graphs.

        Raises:
            ConfigError: the device is not one that this was written for.
        """
        device = get_device().device
        if device != "cuda":
            raise ConfigError(f"graphs of width 1 are known for cuda only, the device is {device}")
        self._runner = model_runner
        spec = get_spec()
        before = (spec.speculative_num_steps, spec.speculative_num_draft_tokens)
        workspace = model_runner.init_new_workspace
        _override(0, 1)
        try:
            self._attention = model_runner._get_attention_backend(init_new_workspace=True)  # noqa: SLF001  # SGLang offers no other way
            graphs = model_runner._decode_cuda_graph_runner_cls()  # noqa: SLF001  # as above
            self._graphs = graphs(
                model_runner,
                attn_backend=self._attention,
                speculative_num_steps=0,
                speculative_num_draft_tokens=1,
            )
        finally:
            model_runner.init_new_workspace = workspace
            _override(*before)
        self._wide: tuple[Any, Any] | None = None

    def enter(self) -> None:
        """Put them in place."""
        runner = self._runner
        self._wide = (runner.attn_backend, runner.decode_cuda_graph_runner)
        runner.attn_backend, runner.decode_cuda_graph_runner = self._attention, self._graphs

    def leave(self) -> None:
        """Put the others back."""
        if self._wide is not None:
            self._runner.attn_backend, self._runner.decode_cuda_graph_runner = self._wide
            self._wide = None


def _override(steps: int | None, tokens: int | None) -> None:
    get_context().override(
        "autospec.narrow", speculative_num_steps=steps, speculative_num_draft_tokens=tokens
    )
