"""What one choice for everything costs, at 80 columns."""

from __future__ import annotations

from dataclasses import replace

from autospec.breakdown import Stopped, Winner
from autospec.config import PLAIN, SpecConfig
from autospec.evidence import Interval, Point
from autospec.report.tables import points_table
from autospec.report.winners import schedule_line, stopped_lines, winners_table
from tests.report.test_tables import point, shown
from tests.test_profile import make_profile

NGRAM = SpecConfig("NGRAM", num_draft_tokens=8)
TREE = SpecConfig("STANDALONE", 4, 2, 8, "/a/very/long/path")
ONE = Interval(1.0, 1.0, 1.0)


def winner(config: SpecConfig, label: str | None, level: int | None, lead: Interval) -> Winner:
    """A row."""
    return Winner(config, Interval(1.8, 1.7, 1.9), Interval(1.2, 1.1, 1.3), lead, level, label, 2.5)


def test_each_part_has_its_best_and_what_the_deployed_one_gives_away() -> None:
    """A lead of 1.25 is a fifth of the best one's figure; the deployed one is called so."""
    profile = make_profile()
    deployed = profile.choice.config
    rows = (
        winner(deployed, None, 128, ONE),
        winner(TREE, "a class with a long name", None, Interval(1.25, 1.125, 1.6)),
    )
    table = winners_table(replace(profile, winners=rows))
    assert table is not None
    lines = shown(table)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    for said in ("concurrency 128", "as deployed", "1.80x", "1.20x", "20% (11%-38%)", "2.50"):
        assert said in text
    assert "/a/very" not in text


def test_nothing_is_said_where_one_choice_costs_nothing() -> None:
    """Without classes, and with the deployed configuration the best at every load."""
    profile = make_profile()
    deployed = winner(profile.choice.config, None, 1, ONE)
    assert winners_table(profile) is None
    assert winners_table(replace(profile, winners=(deployed,))) is None
    mixed = (deployed, winner(profile.choice.config, "mail", None, ONE))
    assert winners_table(replace(profile, winners=mixed)) is not None


def test_schedule_is_said_where_it_is_not_one_depth() -> None:
    """By load, with plain decoding in words; not where plain decoding is deployed."""
    profile = replace(make_profile(), schedule={8: 0, 1: 5, 4: 3})
    assert schedule_line(profile) == "schedule  depth by concurrency: 5 at 1, 3 at 4, plain at 8"
    assert schedule_line(replace(profile, schedule={1: 3, 4: 3})) == ""
    plain = replace(profile.choice, config=PLAIN, server_args={"model_path": "models/m"})
    assert schedule_line(replace(profile, choice=plain)) == ""


def test_stopped_candidates_are_a_line_each() -> None:
    """With how far each came and what it showed."""
    rows = (
        Stopped(NGRAM, 1, Interval(0.5, 0.4, 0.6)),
        Stopped(TREE, 2, Interval(0.8, 0.7, 0.9)),
    )
    assert stopped_lines(replace(make_profile(), stopped=rows)) == [
        f"{NGRAM.label}: stopped after 1 pass a load, 0.50x (0.40 to 0.60) of plain",
        f"{TREE.label}: stopped after 2 passes a load, 0.80x (0.70 to 0.90) of plain",
    ]


def test_table_has_the_objectives_figure_where_it_is_not_throughput() -> None:
    """Requests/s within the SLO; a row without a time per token has a dash."""
    rows: list[Point] = [replace(point(NGRAM, 128, 1.5), request_goodput=12.3456)]
    text = "\n".join(shown(points_table(rows, objective="goodput")))
    assert "goodput" in text
    assert "12.3" in text
    latency = shown(points_table(rows, objective="latency"))
    assert "tpot ms" in "\n".join(latency)
    assert latency[-2].rstrip().endswith("-")
    assert "goodput" not in "\n".join(shown(points_table(rows)))
