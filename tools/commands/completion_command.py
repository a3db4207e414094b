"""`ipcbus completion`: prints the script by which a shell completes the words of this command."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Prints the script by which SHELL completes commands, options, topics, sessions, domains and transports.

    The Tab key reads what contexts show of themselves in shared memory; it subscribes to nothing.

    \b
    Switch completion on in this shell, or in the start file of every shell:
      bash   eval "$(ipcbus completion bash)"         ~/.bashrc
      zsh    eval "$(ipcbus completion zsh)"          ~/.zshrc, below compinit
      fish   ipcbus completion fish | source          ~/.config/fish/config.fish
    """
    from ipcbus_tools.completion.shell_completion import SCRIPTS

    click.echo(SCRIPTS[shell], nl=False)
