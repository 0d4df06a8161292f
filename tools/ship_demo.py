"""Takes a study of the demo into the repository: ``python -m tools.ship_demo STUDY``.

Written are a profile that names no folder of this machine, its policy, the report as Markdown and
its picture of the throughputs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from autospec import demo
from autospec.control.choose import sibling_policy
from autospec.control.load import load_policy
from autospec.engine.models import read_model
from autospec.errors import AutospecError, MismatchError
from autospec.profile import STUDY_PROFILE, Profile, load_profile, save_profile
from autospec.report.content import Content, gather
from autospec.report.figures import throughput_figure
from autospec.report.markdown import markdown_page
from autospec.tuning.places import DEMO_DRAFT, DEMO_TARGET, make_portable, with_places

__all__ = ["places_of", "ship"]

ROOT: Final = Path(__file__).parents[1]
PROFILE: Final = Path("profiles", "demo-cpu.yaml")
REPORT: Final = Path("docs", "demo-report.md")
PICTURE: Final = Path("docs", "images", "demo-throughput.svg")


def ship(study: Path, root: Path = ROOT) -> None:
    """Write the four files below ``root``.

    Raises:
        AutospecError: the study has no profile, it is not of the demo, or a path of this machine
            would be left in what is written.
    """
    measured = load_profile(study / STUDY_PROFILE)
    places = places_of(measured)
    profile = root / PROFILE
    for path in (profile, root / REPORT, root / PICTURE):
        path.parent.mkdir(parents=True, exist_ok=True)
    save_profile(profile, make_portable(measured, places))
    policy = sibling_policy(study / STUDY_PROFILE)
    if policy.is_file():
        load_policy(policy)
        shutil.copyfile(policy, sibling_policy(profile))
    own = {str(study / STUDY_PROFILE): str(PROFILE), str(study): "autospec-studies/demo"}
    content = replace(with_places(gather(study), places | own), name="the demo")
    (root / REPORT).write_text(markdown_page(content), encoding="utf-8")
    (root / PICTURE).write_text(picture(content), encoding="utf-8")


def places_of(profile: Profile) -> dict[str, str]:
    """The folders of the demo's models that a profile names, and their names.

    Raises:
        MismatchError: a model is not the demo's.
    """
    found = {profile.target.model: (str(demo.model_path()), DEMO_TARGET)}
    best = profile.verdict.best
    draft = best.draft_model if best is not None else None
    if draft is not None:
        found[draft] = (str(demo.draft_path()), DEMO_DRAFT)
    for folder, (own, name) in found.items():
        if read_model(folder).digest != read_model(own).digest:
            raise MismatchError(f"{folder} is not {name}, which is in {own}")
    return {folder: name for folder, (_, name) in found.items()}


def picture(content: Content) -> str:
    """The report's picture as a file of its own, with the page's colours for light and dark."""
    svg = throughput_figure(content) or ""
    light, dark = _page_colours()
    style = (
        f"<style>svg {{ {light} background: var(--page); }} "
        f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }} "
        'text { font-family: system-ui, "DejaVu Sans", sans-serif !important; }</style>'
    )
    return re.sub(r"(<svg[^>]*>)", rf"\1{style}", svg, count=1) + "\n"


def _page_colours() -> tuple[str, str]:
    """What the report's page says of its colours, for light and for dark."""
    page = (ROOT / "autospec" / "report" / "templates" / "report.html.j2").read_text("utf-8")
    light, dark = (" ".join(rules.split()) for rules in re.findall(r":root \{([^}]*)\}", page))
    return light, dark


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Take a study of the demo into the repository.")
    parser.add_argument("study", type=Path, metavar="STUDY")
    options = parser.parse_args()
    try:
        ship(options.study.absolute())
    except AutospecError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
