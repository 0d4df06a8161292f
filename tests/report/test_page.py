"""The report's forms: whole, escaped, and of one content."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from autospec.cli import cli
from autospec.profile import save_profile
from autospec.report.content import Content, gather
from autospec.report.markdown import markdown_page
from autospec.report.page import html_page
from tests.report.synthetic import write_study
from tests.test_profile import make_profile

EVIL = '<script>alert("1")</script> | `x` & \n y'


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """A study of 30 trials with a failure."""
    folder = tmp_path_factory.mktemp("synthetic") / "study"
    write_study(folder, 30)
    return gather(folder)


class _Elements(HTMLParser):
    """Counts elements and their ids, and notes what an attribute would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Count one."""
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[str(value)] += 1
            if name in ("src", "href", "xlink:href") and not str(value).startswith(("#", "data:,")):
                self.fetched.append(str(value))


def elements(page: str) -> _Elements:
    """What a page consists of."""
    parser = _Elements()
    parser.feed(page)
    return parser


def test_page_needs_no_network_and_no_script(content: Content) -> None:
    """One file; ids of its pictures do not collide."""
    found = elements(html_page(content))
    assert found.fetched == []
    assert found.tags["script"] == 0
    assert found.tags["svg"] == 5
    assert [name for name, count in found.ids.items() if count > 1] == []


def test_page_has_every_part(content: Content) -> None:
    """From the verdict to the command that made it."""
    page = html_page(content)
    for heading in (
        *("Throughput", "Acceptance", "Step time", "Predicted against measured"),
        *("Search path", "What did not run"),
        *("Are the answers the same?", "What to doubt", "Environment", "Commands"),
    ):
        assert f"<h2>{heading}</h2>" in page
    assert "line 59 of a server that ran out of memory &lt;&amp;&gt;" in page
    assert "autospec serve" in page


def test_colours_of_pictures_are_the_pages_own(content: Content) -> None:
    """So one picture serves light, dark and paper."""
    page = html_page(content)
    used = set(re.findall(r"var\((--[\w-]+)\)", page))
    defined = set(re.findall(r"^  .*?(--series-\d)", page, re.MULTILINE))
    assert {"--text", "--grid", "--plain", "--series-0"} <= used
    assert defined
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    left = {c for svg in pictures for c in re.findall(r"(?:fill|stroke): (#\w{6})", svg)}
    assert left <= {"#ffffff"}


def test_text_of_others_is_escaped(tmp_path: Path) -> None:
    """A prompt file's name or an error cannot become markup."""
    base = make_profile()
    profile = replace(
        base,
        workload=replace(base.workload, name=EVIL),
        verdict=replace(base.verdict, reason=EVIL),
        failed=(replace(base.failed[0], error=EVIL),),
        acceptance=(replace(base.acceptance[0], label=EVIL),),
        warnings=(EVIL,),
    )
    save_profile(tmp_path / "p.yaml", profile)
    page = html_page(gather(tmp_path / "p.yaml"))
    assert elements(page).tags["script"] == 0
    assert "<script" not in page
    text = markdown_page(gather(tmp_path / "p.yaml"))
    assert "<script" not in text.replace("\\<script", "")
    widths = {
        len(re.findall(r"(?<!\\)\|", line))
        for line in text.split("## Acceptance")[1].split("##")[0].splitlines()
        if line.startswith("|")
    }
    assert widths == {4}


def test_markdown_tells_the_same_without_pictures(content: Content) -> None:
    """Every trial and every measured row is in it."""
    text = markdown_page(content)
    assert text.startswith("# autospec report: study\n\n**faster: synthetic")
    assert text.count("| complete |") == 29
    assert text.count("| search |") == len(content.points)
    assert "      line 59 of a server" in text


def test_command_writes_what_the_files_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTML by default and beside the caller; Markdown and JSON on request."""
    write_study(tmp_path / "s", 3)
    runner = CliRunner()
    monkeypatch.chdir(tmp_path)
    assert runner.invoke(cli, ["report", "s"]).exit_code == 0
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    runner.invoke(cli, ["report", "s", "-o", "r.md"])
    assert Path("r.md").read_text(encoding="utf-8").startswith("# autospec report")
    shown = runner.invoke(cli, ["report", "s", "--format", "json"])
    document = json.loads(shown.stdout)
    assert document["schema"] == 1
    assert len(document["trials"]) == 3
    assert document["profile"]["verdict"]["decision"] == "faster"


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra the other forms still work."""
    save_profile(tmp_path / "p.yaml", make_profile())
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "autospec.report.page", raising=False)
    command = ["report", str(tmp_path / "p.yaml")]
    result = CliRunner().invoke(cli, command)
    assert result.exit_code == 1
    assert "pip install 'sglang-autospec[report]'" in result.stderr
    assert CliRunner().invoke(cli, [*command, "--format", "md"]).exit_code == 0
