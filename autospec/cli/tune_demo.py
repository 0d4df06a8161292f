"""What ``autospec tune --demo`` stands for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from autospec.tuning.run import TuneListener

__all__ = ["MAY_CHANGE", "demo_study", "demo_values", "given_options"]

#: What ``--demo`` uses where the user says nothing: two cores need 25 to 40 minutes for it.
_DEMO: dict[str, Any] = {
    "concurrencies": (1, 4),
    "requests_per_pass": 4,
    "max_trials": 5,
    "confirm_rounds": 2,
    "lossless_prompts": 16,
    "output": "demo.yaml",
    "mem_fraction_static": 0.2,
}
#: The space of ``--demo`` by method; words that name no searched method would be refused.
_DEMO_SPACE = {
    "NGRAM": "NGRAM.tokens=4 NGRAM.breadth=4 NGRAM.match=BFS",
    "STANDALONE": "STANDALONE.steps=1,2,4 STANDALONE.topk=1,2 STANDALONE.tokens=8",
}

#: The study of the demo as it is; running the demo again goes on with it.
_DEMO_STUDY = Path("autospec-studies") / "demo"
#: Options that do not change what a study is.
MAY_CHANGE = {"resume", "demo", "budget", "max_trials", "allow_lossy", "output", "as_json"}


def demo_study(
    context: click.Context, options: dict[str, Any], view: TuneListener
) -> dict[str, Any]:
    """Where the demo's study goes: one place for the demo as it is, begun or gone on with."""
    from autospec.tune.database import DATABASE

    if set(given_options(context, options)) - MAY_CHANGE:
        return {}
    if not (_DEMO_STUDY / DATABASE).exists():
        return {"study": _DEMO_STUDY}
    view.note(f"going on with {_DEMO_STUDY}; remove it to measure anew")
    return {"resume": _DEMO_STUDY}


def demo_values(
    context: click.Context, values: dict[str, Any], view: TuneListener
) -> dict[str, Any]:
    """The options with the demo's own in place of what was not given.

    Raises:
        UsageError: a model, prompts or a device were given.
    """
    from autospec import demo

    given = given_options(context, values)
    if given.keys() & {"prompts", "model", "device"} and not str(values["model"]).startswith("-"):
        raise click.UsageError("--demo brings its own model, prompts and device")
    # Without MODEL, the first pass-through flag lands in its place.
    extra = (values["model"], *values["extra"]) if values["model"] else values["extra"]
    drafts = values["drafts"] if "drafts" in given else _demo_drafts(values, view)
    searched = [name.upper() for name in values["algorithms"]] or ["NGRAM", *dict(drafts)]
    defaults = _DEMO | {"space": " ".join(_DEMO_SPACE.get(name, "") for name in searched)}
    return {
        **values,
        **{name: value for name, value in defaults.items() if name not in given},
        "drafts": drafts,
        "model": str(demo.model_path(view.note)),
        "prompts": str(demo.prompts_path()),
        "device": "cpu",
        "extra": extra,
    }


def _demo_drafts(values: dict[str, Any], view: TuneListener) -> tuple[tuple[str, str], ...]:
    """The drafter that stands beside the package, unless other methods were asked for."""
    from autospec import demo

    if values["algorithms"] and "STANDALONE" not in map(str.upper, values["algorithms"]):
        return ()
    draft = demo.draft_path()
    if draft is None:
        view.note("without examples/demo-draft of the source tree: n-gram drafting only")
        return ()
    return (("STANDALONE", str(draft)),)


def given_options(context: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """The options that stood on the command line."""
    sources = {name: context.get_parameter_source(name) for name in values}
    default = click.core.ParameterSource.DEFAULT
    return {k: v for k, v in values.items() if sources[k] not in (None, default)}
