"""The drafter's card: what it is, what it has seen, how it was made, what it reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tools.demo_draft.figures import accept_length, agreement
from tools.demo_draft.files import write_atomically
from tools.demo_draft.plan import Plan
from tools.demo_draft.prompts import Prompt

__all__ = ["ENGINE_MARK", "text", "write"]

#: What stands behind this line is measured and written by hand, and kept.
ENGINE_MARK: Final = "## Through the real engine"
_STEPS: Final = (1, 2, 3, 5)
_TEXT: Final = """\
---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
pipeline_tag: text-generation
---
# A STANDALONE drafter for the demo

A two-layer Llama (hidden size 256, 4 attention heads, MLP 640, tied embedding; 13,960,448
parameters, 27.9 MB in bfloat16) that drafts for SmolLM2-135M-Instruct, with whose tokenizer it
comes. Alone it writes nothing of use. `autospec tune --demo` takes it as
`--draft STANDALONE=examples/demo-draft`.

It was trained as people train a drafter for their traffic: on the target's own greedy answers to a
narrow kind of prompts. Beyond that kind it drafts badly, and is meant to: the demo shows both.

Licence: Apache-2.0 (LICENSE), like SmolLM2-135M-Instruct by Hugging Face (Apache-2.0), from which
come the embedding it began from (256 principal components of the target's), the answers it
learned, and the tokenizer files, unchanged.

## What it has seen

| class of the demo | in training |
|---|---|
| `mail` | {mails:,} prompts of one wording; no surname, item or order number of the demo's {mail} |
| `edit` | {edits:,} notices to repeat with one word changed; none of the demo's {notices}, made \
of the same sentences; and no code, which the demo's other {code} are |
| `chat` | nothing: no question of any kind |

Prompts come from seeds (`tools/demo_draft/prompts.py` and `edits.py`), so nothing else need be
kept to make them again; `tests/tools/test_prompts.py` holds that none of the demo is among them.

## How it was made

`python -m tools.train_demo_draft`, {minutes:.0f} minutes on 2 cores ({stages}), seed {seed}:

1. greedy answers of the target to all prompts, in bfloat16, by SGLang on the CPU: {tokens:,}
   tokens to learn from;
2. {steps} updates of {batch} answers: cross-entropy of the answers' tokens, AdamW, cosine from
   {rate:g}; the weights kept are those of the best held-out agreement.

## Held out, without an engine

Top-1 agreement with the target's greedy answers, and the accept length (tokens a verify step,
bonus token included) that a chain of so many steps would have. Held-out prompts chose the weights;
the demo's are only reported.

| prompts | answers | top-1 agreement | {heads} |
|---|---|---|{dashes}
{rows}
"""


def text(
    sets: Mapping[str, Sequence[Prompt]],
    right: Mapping[str, Sequence[Sequence[bool]]],
    plan: Plan,
    timings: Mapping[str, float],
    tokens: int,
) -> str:
    """The card, up to the figures of the engine.

    Args:
        sets: all prompts, by set.
        right: of the sets not trained on, for each answer whether each token was agreed on.
        plan: how it was trained.
        timings: seconds by stage.
        tokens: answer tokens trained on.
    """
    code = sum("```" in prompt.text for prompt in sets["demo-edit"])
    return _TEXT.format(
        mails=len(sets["mail"]),
        edits=len(sets["edit"]),
        mail=len(sets["demo-mail"]),
        notices=len(sets["demo-edit"]) - code,
        code=code,
        minutes=sum(timings.values()) / 60,
        stages=", ".join(f"{name} {seconds / 60:.0f}" for name, seconds in timings.items()),
        seed=plan.seed,
        steps=plan.steps,
        batch=plan.batch,
        rate=plan.rate,
        tokens=tokens,
        heads=" | ".join(f"{steps} {'step' if steps == 1 else 'steps'}" for steps in _STEPS),
        dashes="---|" * len(_STEPS),
        rows="\n".join(_row(name, answers) for name, answers in right.items()),
    )


def write(path: Path, text: str) -> None:
    """Write the card, keeping what stands under the engine's heading."""
    _, mark, measured = (path.read_text("utf-8") if path.exists() else "").partition(ENGINE_MARK)
    write_atomically(path, f"{text}\n{mark}{measured}".rstrip().encode() + b"\n")


def _row(name: str, right: Sequence[Sequence[bool]]) -> str:
    lengths = " | ".join(f"{accept_length(right, steps):.2f}" for steps in _STEPS)
    return f"| {name} | {len(right)} | {agreement(right):.2f} | {lengths} |"
