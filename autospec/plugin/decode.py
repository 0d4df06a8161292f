"""Verification of one token, run as the decode step that it is.

SGLang verifies through its path for several new tokens a request, even where there is one: on a CPU
that stores keys and values apart from attention and lays out a mask, in each layer. The attention
of a decode step does the same work for less. Where graphs are captured, the width decides and not
the mode, so that nothing is to be gained there.

Loaded in scheduler processes only.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from sglang.srt.configs.hybrid_arch import mambaish_config
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_device

__all__ = ["decode_single_tokens"]


def decode_single_tokens(runner: Any) -> None:
    """Have a target's model runner decode what is to be verified at a width of one token.

    Nothing changes on a device other than a CPU, nor for a model with a recurrent state, which
    SGLang keeps apart until a verification is decided.
    """
    if get_device().device != "cpu" or mambaish_config(runner.model_config) is not None:
        return
    verify = runner.forward

    def forward(forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
        verifies = forward_batch.forward_mode.is_target_verify()
        if verifies and forward_batch.spec_info.draft_token_num == 1:
            forward_batch = _as_decode(forward_batch)
        return verify(forward_batch, *args, **kwargs)

    runner.forward = forward


def _as_decode(forward_batch: Any) -> Any:
    """The same tokens at the same places; a decode step counts the new one as present."""
    total, on_host = forward_batch.seq_lens_sum, forward_batch.seq_lens_cpu
    return dataclasses.replace(
        forward_batch,
        forward_mode=ForwardMode.DECODE,
        spec_info=None,
        seq_lens=forward_batch.seq_lens + 1,
        seq_lens_cpu=None if on_host is None else on_host + 1,
        seq_lens_sum=None if total is None else total + forward_batch.batch_size,
    )
