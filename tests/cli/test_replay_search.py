"""``autospec replay search``: figures of a search whose answer is known, without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autospec.cli import cli

FIGURES = {
    "problems",
    "seeds",
    "trials_mean",
    "arms_mean",
    "within_2pct",
    "mean_regret",
    "max_regret",
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two datasets of one target."""
    path = tmp_path / "table.csv"
    rows = ["target,method,dataset,n_draft,baseline_tok_s,tok_s,accept_length,pos1,pos2,pos3"]
    for dataset, speeds in (("code", (150, 180, 190)), ("chat", (90, 85, 80))):
        for n, speed in enumerate(speeds, 1):
            rates = [0.8**d for d in range(1, n + 1)]
            cells = [f"{rate:.3f}" for rate in rates] + [""] * (3 - n)
            length = 1 + sum(rates)
            rows.append(f"m/A,Drafter,{dataset},{n},100,{speed},{length:.2f},{','.join(cells)}")
    path.write_text("\n".join(rows) + "\n")
    return path


def run(*arguments: object) -> Result:
    """The command."""
    return CliRunner().invoke(cli, ["replay", "search", *map(str, arguments)])


def test_json_has_every_figure(table: Path) -> None:
    """Over problems and seeds; with all trials nothing is lost."""
    result = run(table, "--trials", 4, "--seeds", 2, "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert set(document) >= FIGURES
    assert (document["problems"], document["seeds"], document["arms_mean"]) == (2, 2, 4)
    assert document["sampler"] == "structured"
    assert document["trials_mean"] <= 4
    assert document["within_2pct"] == 1
    assert document["max_regret"] == pytest.approx(0, abs=0.02)
    assert "per_problem" not in document


def test_per_problem_names_the_chosen_and_the_best_arm(table: Path) -> None:
    """One entry a search, with what was asked for and why; a dear drafter leaves plain."""
    result = run(table, "--sampler", "gp", "--trials", 4, "--seeds", 2, "--per-problem", "--json")
    rows = json.loads(result.stdout)["per_problem"]
    assert len(rows) == 4
    assert {(row["problem"], row["chosen"], row["best"]) for row in rows} == {
        ("m/A code", "Drafter n=3", "Drafter n=3"),
        ("m/A chat", "PLAIN", "PLAIN"),
    }
    assert all(len(row["asked"]) == row["trials"] for row in rows)
    assert all(asked["reason"] for row in rows for asked in row["asked"])


def test_a_fraction_is_rounded_down(table: Path) -> None:
    """Half of four arms and a bit are two trials."""
    result = run(table, "--sampler", "random", "--fraction", 0.6, "--seeds", 1, "--json")
    assert json.loads(result.stdout)["trials_mean"] == 2


def test_text_fits_eighty_columns(table: Path) -> None:
    """Figures, then one line a problem."""
    result = run(table, "--fraction", 0.5, "--seeds", 1, "--per-problem")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "within 2 % of the best" in result.stdout
    assert any(line.startswith("m/A code") for line in lines)


def test_synthetic_worlds_need_no_file() -> None:
    """A seed is a table."""
    result = run("synthetic:1-2", "--trials", 6, "--seeds", 1, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["problems"] == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "one of --trials and --fraction"),
        (("--trials", 3, "--fraction", 0.5), "one of --trials and --fraction"),
        (("--fraction", 1.5), "the fraction is 1.5"),
        (("--trials", 3, "--sampler", "best"), "unknown sampler 'best'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    table: Path, arguments: tuple[object, ...], words: str
) -> None:
    """Exit code 2, and what would be right."""
    result = run(table, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_table_that_is_none_is_refused(tmp_path: Path) -> None:
    """The file and what it lacks are named."""
    path = tmp_path / "table.csv"
    path.write_text("a,b\n1,2\n")
    result = run(path, "--trials", 3)
    assert result.exit_code == 2
    assert "has no column 'target'" in result.stderr
