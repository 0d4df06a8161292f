"""The report in a real browser: Debian's ``chromium``, headless.

Skipped with a reason where there is none; ``.ci/run`` installs it and sets
``AUTOSPEC_REQUIRE_CHROMIUM``, and then a missing browser is a failure.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from numpy.typing import NDArray

from autospec.report.content import gather
from autospec.report.page import html_page
from tests.report.synthetic import write_study

#: Blink's numbers of ``prefers-color-scheme``.
LIGHT, DARK = 1, 0
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--enable-logging=stderr", "--window-size=1200,3000"),
)


@pytest.fixture(scope="module")
def chromium() -> str:
    """The browser's path."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        reason = "chromium is missing; on Debian: apt install chromium"
        if os.environ.get("AUTOSPEC_REQUIRE_CHROMIUM"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with every part."""
    folder = tmp_path_factory.mktemp("browser")
    write_study(folder / "study", 27)
    (folder / "report.html").write_text(html_page(gather(folder / "study")), encoding="utf-8")
    return folder / "report.html"


def shoot(chromium: str, page: Path, picture: Path, scheme: int = LIGHT) -> list[str]:
    """Take a picture of a page; gives what it said on its console."""
    command = [
        *(chromium, *_FLAGS, f"--user-data-dir={picture.parent / 'browser'}"),
        *(f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={picture}"),
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def pixels(picture: Path) -> NDArray[np.float64]:
    """Red, green and blue from 0 to 1."""
    return np.asarray(imread(picture), dtype=np.float64)[:, :, :3]


@pytest.mark.parametrize(("scheme", "dark"), [(LIGHT, False), (DARK, True)])
def test_page_shows_itself_without_an_error(
    chromium: str, page: Path, tmp_path: Path, scheme: int, dark: bool
) -> None:
    """Nothing on the console; the background follows the reader's choice; pictures are drawn."""
    said = shoot(chromium, page, tmp_path / "page.png", scheme)
    assert said == []
    shown = pixels(tmp_path / "page.png")
    background = float(shown[2, 2].mean())
    assert background < 0.2 if dark else background > 0.9
    inked = np.abs(shown - shown[2, 2]).max(axis=2) > 0.25
    assert inked.mean() > 0.01
    colours = np.unique((shown[inked] * 8).astype(int), axis=0)
    assert len(colours) > 20


def test_an_error_of_a_page_would_be_seen(chromium: str, tmp_path: Path) -> None:
    """The check above can fail."""
    broken = tmp_path / "broken.html"
    broken.write_text("<!DOCTYPE html><script>undefinedName()</script>", encoding="utf-8")
    assert shoot(chromium, broken, tmp_path / "broken.png")


def test_page_prints_on_light_paper(chromium: str, page: Path, tmp_path: Path) -> None:
    """A reader who likes it dark still prints dark on light."""
    paper = tmp_path / "print.html"
    text = page.read_text(encoding="utf-8")
    assert "@media screen and (prefers-color-scheme: dark)" in text
    paper.write_text(text, encoding="utf-8")
    command = [
        *(chromium, *_FLAGS, f"--user-data-dir={tmp_path / 'browser'}"),
        *(f"--blink-settings=preferredColorScheme={DARK}", f"--print-to-pdf={tmp_path / 'p.pdf'}"),
        paper.as_uri(),
    ]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    assert (tmp_path / "p.pdf").read_bytes().startswith(b"%PDF")
