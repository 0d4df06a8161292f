"""The drafter as a folder that SGLang loads as a STANDALONE draft of the demo model."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import torch
from transformers import LlamaForCausalLM

__all__ = ["export"]

#: What decides how text becomes tokens: the target's own files, unchanged.
_TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def export(drafter: LlamaForCausalLM, target: Path, folder: Path) -> None:
    """Write weights in bfloat16, configuration and the target's tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    drafter.to(torch.bfloat16).save_pretrained(folder)
    for name in _TOKENIZER_FILES:
        shutil.copyfile(target / name, folder / name)
