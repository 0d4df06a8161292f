"""``autospec completion``: what a shell needs to complete this program's words."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion_command"]


@click.command("completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion_command(context: click.Context, shell: str) -> None:
    """Print a script that completes commands and options in SHELL.

    \b
    eval "$(autospec completion bash)"                     # in ~/.bashrc
    eval "$(autospec completion zsh)"                      # in ~/.zshrc
    autospec completion fish > ~/.config/fish/completions/autospec.fish
    """  # noqa: D301  # click keeps the lines after a backspace as they are
    found = get_completion_class(shell)
    assert found is not None, shell  # noqa: S101 -- click knows each of the choices
    root = context.find_root()
    click.echo(found(root.command, {}, "autospec", "_AUTOSPEC_COMPLETE").source())
