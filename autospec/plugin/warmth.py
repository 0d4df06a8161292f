"""What a draft model missed while it was not asked, made up for when it is.

At depth 0 SGLang still runs the draft model over each new token, so that its cache stays whole. It
can be told not to, but then offers no way back. Here each request's first missing position is
remembered, and one prefill of the draft model fills the gaps of a whole batch before it drafts
again. Used for STANDALONE on a CPU, where that extra forward is a good part of a plain step, unless
the variable that skips it is set to 0. EAGLE heads would need the target's hidden states of the
gap, which nobody keeps.

Loaded in scheduler processes only.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from sglang.srt.model_executor.forward_batch_info import (
    CaptureHiddenMode,
    ForwardBatch,
    ForwardMode,
)
from sglang.srt.runtime_context import get_device
from sglang.srt.speculative.eagle_info import EagleDraftExtendInput

__all__ = ["Warmth"]

_SKIP = "SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND"
#: What a forward of the draft model changes in a batch.
_CHANGED = (
    "forward_mode",
    "input_ids",
    "out_cache_loc",
    "prefix_lens",
    "extend_lens",
    "extend_num_tokens",
    "extend_logprob_start_lens",
    "spec_info",
)


class Warmth:
    """How far each request's draft cache reaches."""

    def __init__(self, draft_worker: Any) -> None:
        """Have SGLang skip the draft model at depth 0 from here on."""
        os.environ[_SKIP] = "1"
        self._draft = draft_worker
        self._reach: dict[str, int] = {}

    @staticmethod
    def pays() -> bool:
        """Whether this server is one that this was written and measured for, and nobody minds."""
        return bool(get_device().device == "cpu") and os.environ.get(_SKIP) not in {"0", "false"}

    def skip(self, batch: Any) -> None:
        """Note a step at depth 0: the cache will lack what comes after this length."""
        reach = self._reach
        lengths = batch.seq_lens_cpu.tolist()
        self._reach = {
            req.rid: reach.get(req.rid, length)
            for req, length in zip(batch.reqs, lengths, strict=True)
        }

    def forget(self, batch: Any) -> None:
        """Note a prefill, which runs the draft model over all of its requests."""
        for req in batch.reqs:
            self._reach.pop(req.rid, None)

    def catch_up(self, batch: Any) -> bool:
        """Close the gaps of a batch that is about to be drafted for; whether there were any."""
        reach, self._reach = self._reach, {}
        ends = batch.seq_lens_cpu.tolist()
        if not any(
            reach.get(req.rid, end) < end for req, end in zip(batch.reqs, ends, strict=True)
        ):
            return False
        # Whoever misses nothing has its last position done again: the batch drafts from there.
        starts = [
            min(reach.get(req.rid, end), end - 1) for req, end in zip(batch.reqs, ends, strict=True)
        ]
        before = {name: getattr(batch, name) for name in _CHANGED}
        try:
            logits = self._prefill(batch, starts, ends)
        finally:
            for name, value in before.items():
                setattr(batch, name, value)
        draft_input = batch.spec_info
        draft_input.topk_index = torch.argmax(logits, dim=-1, keepdim=True)
        draft_input.topk_p = torch.ones_like(draft_input.topk_index, dtype=torch.float32)
        return True

    def _prefill(self, batch: Any, starts: list[int], ends: list[int]) -> torch.Tensor:
        """The draft model over the gaps; logits of each request's last position."""
        device, runner = batch.seq_lens.device, self._draft.draft_runner
        spans = list(zip(batch.reqs, starts, ends, strict=True))
        # The draft's cache holds at each position the token that follows it.
        tokens = [token for req, start, end in spans for token in _tokens(req)[start + 1 : end + 1]]
        slots = batch.req_to_token_pool.req_to_token
        rows = batch.req_pool_indices.tolist()
        batch.forward_mode = ForwardMode.EXTEND
        batch.input_ids = torch.tensor(tokens, dtype=torch.int64, device=device)
        batch.out_cache_loc = torch.cat(
            [slots[row, start:end] for row, (_, start, end) in zip(rows, spans, strict=True)]
        ).to(torch.int64)
        batch.prefix_lens = starts
        batch.extend_lens = [end - start for _, start, end in spans]
        batch.extend_num_tokens = len(tokens)
        batch.extend_logprob_start_lens = list(ends)
        batch.spec_info = EagleDraftExtendInput(
            hidden_states=None, num_tokens_per_req=1, num_tokens_for_logprob_per_req=1
        )
        forward_batch = ForwardBatch.init_new(
            batch,
            runner,
            capture_hidden_mode=CaptureHiddenMode.NULL,
            return_hidden_states_before_norm=False,
        )
        forward_batch.return_logprob = False
        logits: torch.Tensor = runner.forward(forward_batch).logits_output.next_token_logits
        return logits


def _tokens(req: Any) -> list[int]:
    return [*req.origin_input_ids, *req.output_ids]
