"""The command line: one file a command.

``import autospec.cli`` loads none of torch, sglang, skopt or matplotlib: a command imports what it
needs when it runs.
"""

from __future__ import annotations

from typing import Any

import click

from autospec.cli.args import args_command
from autospec.cli.bench import bench_command
from autospec.cli.compare import compare_command
from autospec.cli.completion import completion_command
from autospec.cli.doctor import doctor_command
from autospec.cli.export import export_command
from autospec.cli.refresh import refresh_command
from autospec.cli.replay import replay_command
from autospec.cli.report import report_command
from autospec.cli.serve import serve_command
from autospec.cli.show import show_command
from autospec.cli.tune import tune_command
from autospec.cli.watch import watch_command
from autospec.errors import AutospecError

__all__ = ["cli", "main"]


class _Failure(click.ClickException):
    """An error of the library, said in one line with its own exit code."""

    def __init__(self, error: AutospecError) -> None:
        super().__init__(" ".join(str(error).split()))
        self._error = error

    @property
    def exit_code(self) -> int:  # type: ignore[override]  # click declares a plain attribute
        return self._error.exit_code


class _Group(click.Group):
    """Turns library errors and Ctrl-C into one line and an exit code, in one place."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except AutospecError as error:
            raise _Failure(error) from error
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(130)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sglang-autospec", prog_name="autospec")
def cli() -> None:
    """Choose and control speculative decoding for a model served by SGLang.

    Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted.
    """


for _command in (
    tune_command,
    serve_command,
    args_command,
    export_command,
    doctor_command,
    show_command,
    report_command,
    bench_command,
    compare_command,
    replay_command,
    watch_command,
    refresh_command,
    completion_command,
):
    cli.add_command(_command)


def main() -> None:
    """Entry point of the ``autospec`` command."""
    cli(prog_name="autospec")
