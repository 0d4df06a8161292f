"""Drafting depth by decode step for chains of EAGLE, EAGLE3, NEXTN and STANDALONE.

SGLang's adaptive speculation has the parts, one runtime state a depth, but offers them to EAGLE
alone, decides by acceptance alone, and its depth 0 fails without overlap scheduling. Here the
policy takes the place of its rule, in both workers.

Loaded in scheduler processes only.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import torch
from sglang.srt.layers.moe.utils import (
    speculative_moe_a2a_backend_context,
    speculative_moe_backend_context,
)
from sglang.srt.runtime_context import get_exec
from sglang.srt.speculative.adaptive_runtime_state import SpecRuntimeState
from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2, _qsa_index_share_requested
from sglang.srt.speculative.spec_utils import draft_tp_context
from sglang.srt.speculative.standalone_worker_v2 import StandaloneWorkerV2

from autospec.plugin.decode import decode_single_tokens
from autospec.plugin.engine import captures_graphs, start
from autospec.plugin.warmth import Warmth

__all__ = ["SteeredEagleWorker", "SteeredStandaloneWorker"]


class _Steered(EAGLEWorkerV2):  # type: ignore[misc]  # SGLang has no types here
    """What both workers have in common."""

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(server_args, *args, **kwargs)
        self.steering = start(server_args)
        self._autospec_states: dict[int, Any] = {}
        self._warmth: Warmth | None = None
        self._batch: Any = None
        if self.steering.plan.switching == "depth":
            # Of SGLang's own adaptive speculation, if it was asked for, nothing is left.
            self.adaptive_controller = None
            logging.getLogger("sglang.srt.speculative.eagle_worker_v2").addFilter(_no_switches)

    def init_cuda_graphs(self) -> None:
        """Make the other depths ready, after the one that the server was started with."""
        super().init_cuda_graphs()
        if not self.steering.active:
            return
        if _qsa_index_share_requested(self._draft_worker.draft_runner.model_config.hf_config):
            # Its draft steps share buffers that each depth would have of its own.
            self.steering.fail("draft steps of this model share a sparse index")
            return
        with self._draft_contexts():
            self._autospec_states[self.speculative_num_steps] = self._state_now()
            for depth in self.steering.plan.depths:
                if depth not in self._autospec_states:
                    try:
                        self._autospec_states[depth] = self._state_at(depth)
                    except Exception as error:  # noqa: BLE001  # the server can do without
                        self.steering.drop(depth, error)
        if len(self.steering.depths) < 2:
            self.steering.fail("no depth beside the one at start could be made ready")
        decode_single_tokens(self._target_worker.model_runner)

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one batch."""
        if batch.forward_mode.is_extend() or batch.is_extend_in_batch:
            self.steering.interrupted()
            if self._warmth is not None:
                self._warmth.forget(batch)
        self._batch = batch
        try:
            return super().forward_batch_generation(batch, *args, **kwargs)
        finally:
            self._batch = None

    def activate_step_by_batch(self, batch_size: int) -> None:
        """Choose the depth of the decode step that is about to run."""
        depth = self.steering.choose(batch_size)
        if self.adaptive_controller is not None:
            # Asked for by the user, and kept because nothing here may take its place.
            super().activate_step_by_batch(batch_size)
            return
        try:
            if depth != self.speculative_num_steps:
                self.apply_runtime_state(self._autospec_states[depth])
            if self._warmth is not None and depth == 0:
                self._warmth.skip(self._batch)
            elif self._warmth is not None:
                with self._draft_contexts():
                    if self._warmth.catch_up(self._batch):
                        self.steering.restart_clock()
        except Exception as error:  # noqa: BLE001  # at whatever depth it stands, it can go on
            self.steering.fail(error)

    def on_verify_complete_cpu(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> None:
        """Take the results of a step."""
        super().on_verify_complete_cpu(num_correct_drafts_per_req, batch_size=batch_size)
        self.steering.learn(num_correct_drafts_per_req)

    def _build_trivial_verify_input(self, batch: Any) -> Any:
        verify_input = super()._build_trivial_verify_input(batch)
        # Without overlap scheduling the bonus token comes as int32 and meets int64 tree indices.
        verify_input.draft_token = verify_input.draft_token.to(torch.int64)
        return verify_input

    @contextlib.contextmanager
    def _draft_contexts(self) -> Iterator[None]:
        """What SGLang runs its draft model in."""
        with (
            draft_tp_context(self._draft_worker.parallel_layout),
            speculative_moe_backend_context(),
            speculative_moe_a2a_backend_context(),
        ):
            yield

    def _state_now(self) -> Any:
        draft, runner = self._draft_worker, self._target_worker.model_runner
        return SpecRuntimeState(
            speculative_num_steps=self.speculative_num_steps,
            speculative_num_draft_tokens=self.speculative_num_draft_tokens,
            draft_attn_backend=draft.draft_attn_backend,
            cuda_graph_runner=draft.cuda_graph_runner,
            target_attn_backend=runner.attn_backend,
            target_graph_runner=runner.decode_cuda_graph_runner,
            draft_extend_attn_backend=draft.draft_extend_attn_backend,
            cuda_graph_runner_for_draft_extend=draft.cuda_graph_runner_for_draft_extend,
        )

    def _state_at(self, depth: int) -> Any:
        if captures_graphs():
            return self.build_adaptive_runtime_state(
                depth, depth + 1, cuda_graph_bs=get_exec().graph.cuda_graph_bs_decode
            )
        runner = self._target_worker.model_runner
        workspace, attention = runner.init_new_workspace, runner.attn_backend
        with self._override_worker_state(depth, depth + 1):
            self._draft_worker.init_attention_backend()
            try:
                runner.attn_backend = runner._get_attention_backend(init_new_workspace=True)  # noqa: SLF001  # SGLang offers no other way
                return self._state_now()
            finally:
                runner.init_new_workspace, runner.attn_backend = workspace, attention


class SteeredEagleWorker(_Steered):
    """SGLang's EAGLE worker, steered."""


class SteeredStandaloneWorker(_Steered, StandaloneWorkerV2):  # type: ignore[misc]  # as above
    """SGLang's STANDALONE worker, steered."""

    def init_cuda_graphs(self) -> None:
        """Make the other depths ready, and depth 0 as cheap as it can be."""
        super().init_cuda_graphs()
        if self.steering.active and Warmth.pays():
            self._warmth = Warmth(self._draft_worker)


def _no_switches(record: logging.LogRecord) -> bool:
    """Keep the one line a switch out of the log: probes switch twice in two steps."""
    return not str(record.msg).startswith("Switch adaptive runtime state")
