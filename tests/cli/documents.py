"""Finds the blocks of code in documents, and says what of a command line is not real."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from autospec.argv import to_argv
from autospec.cli import cli
from tests.fake_model import parse_flags

ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted((ROOT / "profiles").glob("*.md")),
)
#: ``text`` is for formulas, drawings and output: it may hold no command.
LANGUAGES: Final = ("bash", "python", "yaml", "jsonl", "json", "text")
#: What stands in a comment before a block whose commands only a machine of that kind can run.
NEEDS: Final = ("engine", "gpu")

_FENCE: Final = re.compile(r"^ *(```+|~~~+)(.*)$")
_NEEDS: Final = re.compile(r"^<!-- needs: (.*) -->$")
_LAUNCH: Final = ("python", "-m", "sglang.launch_server")


class DocumentError(AssertionError):
    """What is wrong in a document, and where."""


@dataclass(frozen=True)
class Block:
    """One block of code: where its first line stands, and what the document says of it."""

    document: Path
    line: int
    language: str
    code: str
    needs: str | None = None

    def __str__(self) -> str:
        return f"{self.document.name}:{self.line}"

    def commands(self) -> list[str]:
        """Its command lines, those that go on over several lines in one."""
        whole = self.code.replace("\\\n", " ")
        return [line for line in whole.splitlines() if line.strip() and line.strip()[0] != "#"]


def find_blocks(document: Path) -> list[Block]:
    """Every block of a document.

    Raises:
        DocumentError: a block without a known language, one that never ends, an unknown need, or a
            command within a block of text.
    """
    found: list[Block] = []
    lines = document.read_text(encoding="utf-8").splitlines()
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened = (number, fence[2].strip())
            continue
        start, language = opened
        opened = None
        code = "".join(f"{text}\n" for text in lines[start : number - 1])
        needs = _NEEDS.match(lines[start - 2]) if start > 1 else None
        block = Block(document, start + 1, language, code, needs[1] if needs else None)
        _require_known(block)
        found.append(block)
    if opened is not None:
        raise DocumentError(f"{document.name}:{opened[0]}: the block never ends")
    return found


def _require_known(block: Block) -> None:
    if block.language not in LANGUAGES:
        raise DocumentError(f"{block}: language {block.language!r} is none of {LANGUAGES}")
    if block.needs is not None and block.needs not in NEEDS:
        raise DocumentError(f"{block}: needs {block.needs!r}, which is none of {NEEDS}")
    if block.language == "text" and re.search(r"(?m)^\W*(autospec|python|make|pip) ", block.code):
        raise DocumentError(f"{block}: a block of text holds a command, which nothing would run")


def parse_command(words: Sequence[str]) -> None:
    """Have the real command read its words, without running it.

    Raises:
        DocumentError: it would refuse them.
    """
    try:
        command: click.Command = cli
        context = cli.make_context("autospec", list(words))
        while isinstance(command, click.Group):
            name, found, rest = command.resolve_command(
                context, context._protected_args + context.args
            )
            assert found is not None
            command = found
            context = command.make_context(name, rest, parent=context)
    except click.exceptions.Exit:
        pass
    except click.ClickException as error:
        raise DocumentError(f"autospec {shlex.join(words)}: {error.format_message()}") from error


def check_other(words: Sequence[str]) -> None:
    """Whether a command of another program names what is there: a target, an extra, a flag.

    Raises:
        DocumentError: it does not, or it is of a program that nothing here knows.
    """
    line = shlex.join(words)
    if words[0] == "make":
        targets = re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"))
        unknown = [word for word in words[1:] if "=" not in word and word not in targets]
    elif list(words[:2]) == ["pip", "install"]:
        unknown = [word for word in words[2:] if not _is_ours(word)]
    elif tuple(words[:3]) == _LAUNCH:
        unknown = unknown_flags(words[3:])
    else:
        raise DocumentError(f"{line}: nothing here can check this program")
    if unknown:
        raise DocumentError(f"{line}: {' '.join(unknown)} is not there")


def unknown_flags(words: Sequence[str]) -> list[str]:
    """The first flag that SGLang does not have."""
    try:
        parse_flags(words)
    except KeyError as error:
        return [str(error.args[0])]
    return []


def require_engine_arguments(arguments: dict[str, Any]) -> None:
    """What the stand-in for ``sglang.Engine`` does with its keywords.

    Raises:
        DocumentError: SGLang does not have one of them.
    """
    if unknown := unknown_flags(to_argv(arguments)):
        raise DocumentError(f"sglang.Engine has no {unknown[0]}")


def _is_ours(requirement: str) -> bool:
    """Whether the distribution has these extras."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    match = re.fullmatch(r"(\.|[\w-]+)(?:\[([\w,]+)\])?", requirement)
    if match is None or match[1] not in (".", project["name"]):
        return False
    return set((match[2] or "").split(",")) <= {"", *project["optional-dependencies"]}


def inline_commands(document: Path) -> list[str]:
    """Commands of autospec's in the running text, between back-ticks."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", document.read_text(encoding="utf-8"))
    spans = re.findall(r"`([^`]+)`", text)
    whole = (" ".join(span.replace("\\|", "|").split()) for span in spans)
    return [span for span in whole if re.match(r"(\w+=\S+ )*autospec [a-z]", span)]


def check_inline(text: str) -> None:
    """Whether a command in the running text, which may leave things out, names what is there.

    Raises:
        DocumentError: there is no such command, or it has no such option.
    """
    words = [word.strip("[]") for word in text[text.index("autospec ") :].split()[1:]]
    command: click.Command = cli
    while isinstance(command, click.Group) and words and re.match(r"[a-z]", words[0]):
        found = command.commands.get(words.pop(0))
        if found is None:
            raise DocumentError(f"`{text}`: there is no such command")
        command = found
    own = words[: words.index("--")] if "--" in words else words
    known = {"-h", "--help", *(name for item in command.params for name in item.opts)}
    known |= {name for item in command.params for name in item.secondary_opts}
    for word in own:
        option = word.strip("()'\"").partition("=")[0]
        if re.match(r"--?[a-z]", option) and option not in known:
            raise DocumentError(f"`{text}`: {command.name} has no option {option}")
