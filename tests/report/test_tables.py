"""Tables that a person reads at 80 columns."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from rich.table import Table

from autospec.config import PLAIN, SpecConfig
from autospec.evidence import Interval, Noise, Point
from autospec.fidelity import Agreement, Lossless
from autospec.report.tables import evidence_lines, points_table, rate, times
from tests.test_profile import make_profile

WIDE = SpecConfig("STANDALONE", 3, 4, 64, "/a/very/long/path/" * 5)
NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)


def shown(table: Table, width: int = 80) -> list[str]:
    """The table's lines on a terminal of that width."""
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    output = console.file
    assert isinstance(output, io.StringIO)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def point(config: SpecConfig, level: int, ratio: float | None) -> Point:
    """One measured row."""
    versus = None if ratio is None else Interval(ratio, ratio, ratio)
    length = None if config.is_plain else 2.5
    return Point(config, "tune", level, Interval(12345.6, 9999, 20000), 3, versus, length)


def test_rows_fit_and_no_figure_is_cut() -> None:
    """However long a draft's path is and however fast the machine."""
    rows = [point(PLAIN, 128, None), point(WIDE, 128, 0.44), point(NGRAM, 128, 12.34)]
    lines = shown(points_table(rows))
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for figure in ("12346", "9999-20000", "0.44x", "12.34x", "2.50", "1.00x"):
        assert figure in text
    assert "/a/very" not in text


@pytest.mark.parametrize(("repeats", "said"), [((6, 6), "6 passes"), ((3, 18), "3 to 18 passes")])
def test_title_says_how_many_passes_stand_behind_a_row(repeats: tuple[int, int], said: str) -> None:
    """A figure's worth depends on it."""
    rows = [
        replace(point(PLAIN, 1, None), repeats=repeats[0]),
        replace(point(NGRAM, 1, 1.5), repeats=repeats[1]),
    ]
    assert f"Search prompts, {said} a row" in shown(points_table(rows, "Search prompts"))[0]


def test_evidence_beside_the_verdict_is_a_line_each() -> None:
    """Noise, answers, unequal settings and warnings."""
    lossless = Lossless("differs", Agreement(3, 1, 8), Agreement(11, 1, 0), near_tie_nats=0.5)
    profile = make_profile(
        noise=Noise(Interval(1.008, 0.99, 1.02), 0.01, 3, ()),
        lossless=lossless,
        warnings=("PLAIN: passes got slower",),
    )
    verdict = replace(profile.verdict, differs_from_plain=("page_size: 1 / 16",))
    assert evidence_lines(replace(profile, verdict=verdict)) == [
        "noise     two launches of plain decoding differed by +0.8% (-1.0% to +2.0%)",
        (
            "lossless  differs: 3 of 12 greedy answers the same, 1 part at a near-tie, "
            "8 elsewhere; between two launches of plain decoding 11"
        ),
        "differs   page_size: 1 / 16 (best / plain)",
        "warning   PLAIN: passes got slower",
    ]
    assert evidence_lines(make_profile()) == []


def test_plain_first_then_best_to_worst() -> None:
    """The reader finds the baseline at the top and the winner below it."""
    rows = [point(WIDE, 1, 0.44), point(NGRAM, 1, 1.5), point(PLAIN, 1, None)]
    text = "\n".join(shown(points_table(rows)))
    assert text.index("PLAIN") < text.index("NGRAM") < text.index("STANDALONE")


@pytest.mark.parametrize(
    ("value", "text"), [(9.876, "9.9"), (99.94, "99.9"), (100.4, "100"), (2500.0, "2500")]
)
def test_throughputs_have_the_digits_they_deserve(value: float, text: str) -> None:
    """One decimal below 100 tokens/s, none above."""
    assert rate(value) == text


def test_log_ratios_are_said_as_factors() -> None:
    """0 is plain decoding's own speed."""
    assert times(0.0) == "1.00x"
