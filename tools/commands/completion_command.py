"""`ipcbus completion`: prints the script that lets a shell complete the words of this command."""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Prints the script that lets SHELL complete commands, options, topics, sessions, domains and transports.

    Nothing is subscribed for that: pressing Tab reads what contexts show of themselves in shared memory.

    \b
    Switch it on for this shell, or in its start file for every shell:
      bash   eval "$(ipcbus completion bash)"         ~/.bashrc
      zsh    eval "$(ipcbus completion zsh)"          ~/.zshrc, below compinit
      fish   ipcbus completion fish | source          ~/.config/fish/config.fish
    """
    from ipcbus_tools.completion.shell_completion import SCRIPTS

    click.echo(SCRIPTS[shell], nl=False)
