"""What the doctor says: one finding a line, each with its remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autospec.evidence import require

__all__ = ["Checkup", "Finding", "Level", "blocks", "fine", "warns"]

Level = Literal["ok", "warning", "blocks"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what it is about, in a word or two.
        level: ``blocks`` when nothing can be measured or served as asked; ``warning`` when it can,
            with a doubt.
        text: what was found.
        fix: what to do about it; None where there is nothing to do.
        link: where it is written about; None where nowhere.
    """

    subject: str
    level: Level
    text: str
    fix: str | None = None
    link: str | None = None

    def __post_init__(self) -> None:
        sound = self.level == "ok" or bool(self.fix)
        require(sound, f"finding {self.subject!r}: fix", self.fix, "given")


@dataclass(frozen=True, slots=True)
class Checkup:
    """All findings.

    Attributes:
        checked: when, as an ISO date and time in UTC.
        findings: in the order in which they were looked at.
    """

    checked: str
    findings: tuple[Finding, ...]
    schema: int = 1

    @property
    def blocked(self) -> bool:
        """Whether something stands in the way."""
        return any(finding.level == "blocks" for finding in self.findings)


def fine(subject: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(subject, "ok", text)


def warns(subject: str, text: str, fix: str, link: str | None = None) -> Finding:
    """Something casts a doubt."""
    return Finding(subject, "warning", text, fix, link)


def blocks(subject: str, text: str, fix: str, link: str | None = None) -> Finding:
    """Something stands in the way."""
    return Finding(subject, "blocks", text, fix, link)
