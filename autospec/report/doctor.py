"""What the doctor found, a finding a line with its remedy below."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Final

from rich.console import Console
from rich.text import Text

from autospec.doctor.finding import Checkup

__all__ = ["print_checkup"]

_SIGNS: Final = {"ok": ("ok", "green"), "warning": ("!", "yellow"), "blocks": ("x", "bold red")}
_WIDTH: Final = 18
_INDENT: Final = _WIDTH + 3


def print_checkup(checkup: Checkup) -> None:
    """Show the findings on standard output, and last what they come to."""
    console = Console(highlight=False, soft_wrap=True)
    for finding in checkup.findings:
        sign, style = _SIGNS[finding.level]
        line = Text(f"{sign:<3}", style=style)
        line.append(f"{finding.subject:<{_WIDTH}}", style="bold")
        line.append(_wrapped(finding.text, console), style="default")
        console.print(line)
        for name, text in (("fix", finding.fix), ("see", finding.link)):
            if text:
                # In one piece, since it is there to be copied.
                console.print(Text(f"{'':<{_INDENT}}{name}: {text}", style="dim"))
    console.print(Text(_summary(checkup), style="bold"))


def _wrapped(text: str, console: Console) -> str:
    """The text between the margins of a terminal; one line where a program reads."""
    if not console.is_terminal:
        return text
    width = max(20, console.width - _INDENT)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{'':<{_INDENT}}".join(lines)


def _summary(checkup: Checkup) -> str:
    counts = Counter(finding.level for finding in checkup.findings)
    if checkup.blocked:
        return f"{counts['blocks']} in the way, {counts['warning']} doubtful, {counts['ok']} fine"
    counted = f"{counts['warning']} doubtful, {counts['ok']} fine"
    return f"nothing is in the way: {counted}; next: autospec tune"
