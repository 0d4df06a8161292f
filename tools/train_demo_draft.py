"""Trains the demo's drafter from nothing but the demo model: ``python -m tools.train_demo_draft``.

Prompts come from seeds, answers from the target itself, greedily; see ``demo_draft`` for each
stage. Every stage keeps what it made in the work folder, and a second run goes on from there.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from autospec import demo
from tools.demo_draft.edits import held_out_edits, training_edits
from tools.demo_draft.files import write_atomically
from tools.demo_draft.plan import Plan
from tools.demo_draft.prompts import Prompt, held_out_mails, training_mails

__all__ = ["demo_prompts", "prompt_sets"]

ROOT: Final = Path(__file__).parents[1]
OUTPUT: Final = ROOT / "examples" / "demo-draft"
NUM_MAILS, NUM_EDITS, NUM_HELD_OUT = 1536, 320, 64
#: Training goes through all answers; the two other groups choose weights and are only reported.
TRAINING: Final = ("mail", "edit")
#: How often a pass goes through a set: edits are fewer.
_TIMES: Final = {"mail": 1, "edit": 2}
HELD_OUT: Final = ("held-out-mail", "held-out-edit")


def demo_prompts() -> dict[str, tuple[Prompt, ...]]:
    """The demo's own prompts by class; nothing learns from them."""
    classes: dict[str, list[Prompt]] = {}
    for line in demo.prompts_path().read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        (message,) = entry["messages"]
        prompt = Prompt(message["content"], entry["class"], entry["max_new_tokens"])
        classes.setdefault(prompt.label, []).append(prompt)
    return {label: tuple(prompts) for label, prompts in classes.items()}


def prompt_sets(
    mails: int = NUM_MAILS, edits: int = NUM_EDITS, held_out: int = NUM_HELD_OUT
) -> dict[str, tuple[Prompt, ...]]:
    """Every set of prompts by name: to learn from, to choose weights by, and the demo's."""
    return {
        "held-out-mail": held_out_mails(held_out),
        "held-out-edit": held_out_edits(held_out),
        **{f"demo-{label}": prompts for label, prompts in demo_prompts().items()},
        "mail": training_mails(mails),
        "edit": training_edits(edits),
    }


def run(options: argparse.Namespace) -> None:
    """Go through all stages; what the work folder has of them is kept."""
    # They load torch, which the tests of the prompts do without.
    from tools.demo_draft import card, evaluate, export, model, targets  # noqa: PLC0415 - so
    from tools.demo_draft.train import train  # noqa: PLC0415 - as above

    work: Path = options.work
    sets = prompt_sets(options.mails, options.edits, options.held_out)
    target = demo.model_path(lambda line: sys.stderr.write(f"{line}\n"))
    with _timed(work, "answers"):
        targets.answer_all(work, target, sets)
    examples = {name: model.load_examples(work, name, prompts) for name, prompts in sets.items()}
    drafter = model.new_drafter(target, options.seed)
    plan = Plan(steps=options.steps, seed=options.seed)
    with _timed(work, "training"):
        train(
            drafter,
            [e for name in TRAINING for e in examples[name] * _TIMES[name]],
            {name: examples[name] for name in HELD_OUT},
            plan,
            work,
        )
    right = {
        name: evaluate.hits(drafter, examples[name]) for name in examples if name not in TRAINING
    }
    export.export(drafter, target, options.output)
    shutil.copyfile(ROOT / "LICENSE", options.output / "LICENSE")
    tokens = sum(len(example.answer) for name in TRAINING for example in examples[name])
    text = card.text(sets, right, plan, _timings(work), tokens)
    card.write(options.output / "README.md", text)
    sys.stderr.write(f"{options.output}\n")


@contextmanager
def _timed(work: Path, stage: str) -> Iterator[None]:
    """Add the time that a stage took, over all runs, to the work folder's record."""
    began = time.monotonic()
    try:
        yield
    finally:
        timings = _timings(work)
        timings[stage] = timings.get(stage, 0.0) + time.monotonic() - began
        write_atomically(work / "timings.json", json.dumps(timings).encode())


def _timings(work: Path) -> dict[str, float]:
    file = work / "timings.json"
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("demo-draft-work"), help="kept stages")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="where the drafter goes")
    parser.add_argument("--mails", type=int, default=NUM_MAILS, help="mails to learn from")
    parser.add_argument("--edits", type=int, default=NUM_EDITS, help="edits to learn from")
    parser.add_argument("--held-out", type=int, default=NUM_HELD_OUT, help="of each of the two")
    parser.add_argument("--steps", type=int, default=Plan().steps, help="updates")
    parser.add_argument("--seed", type=int, default=0)
    run(parser.parse_args(arguments))


if __name__ == "__main__":
    main()
