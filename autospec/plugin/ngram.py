"""NGRAM with an off switch, which SGLang 0.5.23 does not have.

A step without speculation verifies one node, the last token, and so is plain decoding in all but
name; on a CPU its forward pass is that of a decode step too (``decode``). Tensors that outlive the
step keep the width that the rest of SGLang expects. What the corpus would have drafted meanwhile is
held against the tokens that are made (``shadow``), so that a return needs no trial.

Loaded in scheduler processes only.
"""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.ngram_info import NgramVerifyInput
from sglang.srt.speculative.ngram_worker import NGRAMWorker
from sglang.srt.speculative.spec_utils import prepare_mamba_track_for_verify

from autospec.plugin.decode import decode_single_tokens
from autospec.plugin.engine import captures_graphs, start
from autospec.plugin.narrow import NarrowTarget
from autospec.plugin.shadow import Shadows

__all__ = ["SteeredNgramWorker"]

_log = logging.getLogger(__name__)


class SteeredNgramWorker(NGRAMWorker):  # type: ignore[misc]  # SGLang has no types here
    """SGLang's NGRAM worker, asked before each step whether to speculate."""

    def __init__(self, server_args: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(server_args, *args, **kwargs)
        self.steering = start(server_args)
        self._full_width = int(self.draft_token_num)
        self._ends: list[int] = []
        self._narrow_target: NarrowTarget | None = None
        self._shadows = Shadows() if self.steering.wants_shadows else None

    def init_cuda_graphs(self) -> None:
        """Make steps that verify one token as cheap as plain decoding, with graphs or without."""
        super().init_cuda_graphs()
        if not self.steering.active:
            return
        decode_single_tokens(self.model_runner)
        if not captures_graphs():
            return
        try:
            self._narrow_target = NarrowTarget(self.model_runner)
        except Exception as error:  # noqa: BLE001  # without it a plain step would run slowly, so none may
            _log.exception("autospec: no graph for plain decoding")
            self.steering.fail(error)

    def forward_batch_generation(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        """Run one batch, a decode step with or without speculation."""
        if not batch.forward_mode.is_decode():
            self.steering.interrupted()
            return super().forward_batch_generation(batch, *args, **kwargs)
        if self.steering.choose(len(batch.reqs)):
            if self._shadows is not None:
                self._shadows.clear()
            return super().forward_batch_generation(batch, *args, **kwargs)
        return self._forward_plain(batch, *args, **kwargs)

    def on_verify_complete_cpu(
        self, num_correct_drafts_per_req: list[int], batch_size: int = 0
    ) -> None:
        """Take the results of a step."""
        super().on_verify_complete_cpu(num_correct_drafts_per_req, batch_size=batch_size)
        self.steering.learn(num_correct_drafts_per_req)

    def _forward_plain(self, batch: Any, *args: Any, **kwargs: Any) -> Any:
        target = self._narrow_target
        self.draft_token_num = self.speculative_num_draft_tokens = 1
        try:
            if target is not None:
                target.enter()
            result = super().forward_batch_generation(batch, *args, **kwargs)
        finally:
            if target is not None:
                target.leave()
            self.draft_token_num = self.speculative_num_draft_tokens = self._full_width
        self._widen(result.next_draft_input)
        return result

    def _widen(self, draft_input: Any) -> None:
        """Give what goes on to the next step the width that its neighbours in a batch have."""
        tokens = draft_input.accept_tokens
        wide = tokens.new_zeros((tokens.numel(), self._full_width))
        wide[:, 0] = tokens
        draft_input.accept_tokens = wide.flatten()
        draft_input.draft_token_num = self._full_width
        draft_input.num_tokens_per_req = self._full_width
        draft_input.num_tokens_for_logprob_per_req = self._full_width

    def _prepare_for_speculative_decoding(self, batch: Any) -> None:
        if self.draft_token_num == self._full_width or not batch.forward_mode.is_decode():
            super()._prepare_for_speculative_decoding(batch)
            return
        size = len(batch.reqs)
        last = self._last_tokens(batch)
        self._shadow(batch)
        rows = torch.arange(size, dtype=torch.int64, device=self.device).unsqueeze(1)
        leaf = torch.full((size, 1), -1, dtype=torch.int64, device=self.device)
        self.grammar_tree_host = (
            (np.ones(size, dtype=bool), last.cpu().numpy()) if batch.has_grammar else None
        )
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = last
        batch.out_cache_loc = assign_extend_cache_locs_func(
            req_pool_indices=batch.req_pool_indices,
            req_to_token=batch.req_to_token_pool.req_to_token,
            start_offset=batch.seq_lens,
            end_offset=batch.seq_lens + 1,
            batch_size=size,
            draft_token_num=1,
            device=self.device,
        )
        prepare_mamba_track_for_verify(batch)
        batch.spec_info = NgramVerifyInput(
            draft_token=last,
            custom_mask=self._all_visible(batch),
            positions=batch.seq_lens.to(torch.int64),
            retrieve_index=rows,
            retrieve_next_token=leaf,
            retrieve_next_sibling=leaf.clone(),
            draft_token_num=1,
        )

    def _last_tokens(self, batch: Any) -> torch.Tensor:
        """The token of each request that no key and value are cached for yet.

        Under overlap scheduling it is still on its way to ``output_ids``; what the corpus is to
        learn of the step before is staged as SGLang's own preparation does.
        """
        size, width = len(batch.reqs), self._full_width
        if not (self.enable_overlap and not batch.grammar_needs_sync()):
            self.prev_token_ids, self.prev_accept_lens = [], [0] * size
            self._ends = [(req.output_ids or req.origin_input_ids)[-1] for req in batch.reqs]
            return torch.tensor(self._ends, dtype=torch.int64, device=self.device)
        tokens, lengths = batch.spec_info.accept_tokens, batch.spec_info.accept_lens
        self.prev_token_ids = tokens.tolist()
        self.prev_accept_lens = lengths.tolist()
        self._ends = [
            self.prev_token_ids[row * width + made - 1]
            for row, made in enumerate(self.prev_accept_lens)
        ]
        ends = (lengths.to(torch.int64) - 1).unsqueeze(1).to(tokens.device)
        last: torch.Tensor = tokens.view(size, width).gather(1, ends).flatten()
        return last.to(self.device, torch.int64)

    def _shadow(self, batch: Any) -> None:
        """Hold what would have been drafted against the tokens in ``_ends``, and draft on."""
        if self._shadows is None:
            return
        worked_s = time.thread_time()
        try:
            ended, places = self._shadows.follow([req.rid for req in batch.reqs], self._ends)
            if places:
                self._shadows.add(*self._drafts(batch, places))
        except Exception:  # noqa: BLE001  # decoding goes on without them
            _log.exception("autospec: no drafts beside plain decoding from here on")
            self._shadows, ended = None, []
        self.steering.shadow(ended, time.thread_time() - worked_s)

    def _drafts(
        self, batch: Any, places: list[int]
    ) -> tuple[list[str], NDArray[np.int64], NDArray[np.bool_]]:
        """What the corpus would draft for some requests: their names, tokens and masks."""
        width, most = self._full_width, self.max_trie_depth
        tails: list[list[int]] = []
        lengths: list[int] = []
        for place in places:
            req, begin = batch.reqs[place], place * width
            new = self.prev_token_ids[begin : begin + self.prev_accept_lens[place]]
            prompt = req.origin_input_ids_unpadded
            made = list(req.output_ids[-most:]) + new
            tails.append(self._efficient_concat_last_n(list(prompt[-most:]), made, most))
            lengths.append(len(prompt) + len(req.output_ids) + len(new))
        names = [batch.reqs[place].rid for place in places]
        self.ngram_corpus.synchronize()
        return names, *self.ngram_corpus.batch_get(names, tails, lengths)

    def _all_visible(self, batch: Any) -> torch.Tensor:
        """The mask of trees of one node: all that came before, and itself."""
        size = len(batch.reqs)
        # On a CPU masks cover the tree alone, elsewhere the whole sequence (``USE_FULL_MASK``).
        length = size if self.device == "cpu" else int(batch.seq_lens_cpu.sum()) + size
        return torch.ones(length, dtype=torch.bool, device=self.device)

    def _update_ngram_corpus(self, batch: Any) -> None:
        # What was staged has the full width, whatever this step's is.
        width, self.draft_token_num = self.draft_token_num, self._full_width
        try:
            super()._update_ngram_corpus(batch)
        finally:
            self.draft_token_num = width
