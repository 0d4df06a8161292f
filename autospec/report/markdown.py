"""The report as Markdown: the same content without pictures, for a pull request or a wiki."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from autospec.profile import Profile
from autospec.report.content import Content, TrialRow, environment_rows
from autospec.report.tables import evidence_lines, rate, ratio_text

__all__ = ["markdown_page"]


def markdown_page(content: Content) -> str:
    """The whole document."""
    return "\n".join(_lines(content)) + "\n"


def _lines(content: Content) -> Iterator[str]:
    yield f"# autospec report: {_cell(content.name)}"
    yield ""
    yield f"**{_cell(content.verdict)}**"
    if content.profile is not None:
        yield from _section("Evidence", _evidence(content.profile))
    yield from _section("Throughput", _points(content))
    yield from _section("Acceptance by position", _acceptance(content))
    yield from _section("Step time", _steps(content))
    yield from _section("Predicted against measured", _predicted(content))
    yield from _section("Search path", _trials(content.trials))
    yield from _section("What did not run", _failures(content))
    rows = environment_rows(content)
    yield from _section("Environment", _table(("what", "value"), rows) if rows else ())
    yield from _section("Commands", ("```bash", *content.commands, "```"))


def _section(heading: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield from ("", f"## {heading}", "", *found)


def _evidence(profile: Profile) -> Iterator[str]:
    yield f"* deploys {_code(profile.choice.config.label)}"
    for line in evidence_lines(profile):
        yield f"* {_cell(line)}"


def _points(content: Content) -> Iterator[str]:
    head = ("configuration", "prompts", "in flight", "tokens/s", "lowest to highest", "over plain")
    rows = [
        (
            _code(point.config.label),
            "held out" if point.part == "confirm" else "search",
            str(point.concurrency),
            rate(point.output_throughput.value),
            f"{rate(point.output_throughput.low)} to {rate(point.output_throughput.high)}",
            ratio_text(point.vs_plain),
        )
        for point in content.points
    ]
    yield from _table(head, rows) if rows else ()


def _acceptance(content: Content) -> Iterator[str]:
    rows = [
        (
            _cell(row.label or "all prompts"),
            f"{row.accept_length:.2f}",
            " ".join(f"{share:.2f}" for share in row.accept_rate_per_pos),
        )
        for row in content.acceptance
    ]
    yield from _table(("class", "accept length", "first 1, 2, ... right"), rows) if rows else ()


def _steps(content: Content) -> Iterator[str]:
    rows = [
        (
            _code(row.config.label),
            f"{row.batch_size:.1f}",
            f"{row.step_time_ms:.2f}",
            str(row.num_steps),
        )
        for row in content.step_times
    ]
    yield from _table(("configuration", "batch size", "ms", "steps"), rows) if rows else ()


def _predicted(content: Content) -> Iterator[str]:
    rows = [
        (
            _code(row.config.label),
            f"{row.measured:.2f}x",
            f"{row.predicted:.2f}x ({row.low:.2f} to {row.high:.2f})",
        )
        for row in content.predictions
    ]
    yield from _table(("configuration", "measured", "predicted from others"), rows) if rows else ()


def _trials(trials: Sequence[TrialRow]) -> Iterator[str]:
    rows = [
        (
            str(trial.id),
            _code(trial.config.label),
            trial.kind,
            trial.state,
            "" if trial.seconds is None else f"{trial.seconds / 60:.1f}",
            "" if trial.vs_plain is None else f"{trial.vs_plain:.2f}x",
            _cell(trial.reason),
        )
        for trial in trials
    ]
    head = ("trial", "configuration", "for", "state", "min", "over plain", "why")
    yield from _table(head, rows) if rows else ()


def _failures(content: Content) -> Iterator[str]:
    failed = [trial for trial in content.trials if trial.state == "failed"]
    for trial in failed:
        yield f"* {_code(trial.config.label)}: {_cell(trial.error or '')}"
        if trial.log_tail:
            yield from ("", *(f"      {line}" for line in trial.log_tail.splitlines()), "")
    if not failed and content.profile is not None:
        for failure in content.profile.failed:
            yield f"* {_code(failure.config.label)}: {_cell(failure.error)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _cell(text: str) -> str:
    """Text that neither ends a cell nor is read as markup."""
    line = " ".join(text.split())
    for sign in "\\|<>*_`[]":
        line = line.replace(sign, f"\\{sign}")
    return line


def _code(text: str) -> str:
    return f"`{text}`"
