"""The scripts by which shells ask for completions of an unfinished line, and the answers.

The script of a shell calls `ipcbus` with the line up to the cursor in the environment, and reads lines of three
columns: `plain`, `file` or `dir`; the value; what the value means. The scripts of click are not used: bash breaks a
line at the colons of a source string, and these scripts let the shell expand names that other processes chose.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from click.shell_completion import ShellComplete

from ipcbus_tools.cli import COMPLETE_VARIABLE

if TYPE_CHECKING:
    import click

_LINE: Final = "_IPCBUS_LINE"
_BREAKS: Final = "_IPCBUS_BREAKS"

_BASH: Final = r"""
_ipcbus_completion() {
    local kind value help
    COMPREPLY=()
    while IFS=$'\t' read -r kind value help; do
        case $kind in
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done < <(_IPCBUS_COMPLETE=bash _IPCBUS_LINE="${COMP_LINE:0:COMP_POINT}" _IPCBUS_BREAKS="$COMP_WORDBREAKS" \
        "$1" 2>/dev/null)
}
complete -o nosort -F _ipcbus_completion ipcbus
"""

_ZSH: Final = r"""
#compdef ipcbus
_ipcbus_completion() {
    local kind value help asked="${(j: :)words[1,CURRENT-1]} $QIPREFIX$PREFIX"
    local -a values shown kinds
    while IFS=$'\t' read -r kind value help; do
        if [[ $kind == plain ]]; then
            values+=("$value")
            shown+=("$value${help:+  -- $help}")
        else
            kinds+=($kind)
        fi
    done < <(_IPCBUS_COMPLETE=zsh _IPCBUS_LINE="$asked" "${words[1]}" 2>/dev/null)
    [[ $PREFIX == --*=* ]] && compset -P '*='
    (( $#values )) && compadd -V ipcbus -l -d shown -a values
    (( $kinds[(I)file] )) && _files
    (( $kinds[(I)dir] )) && _files -/
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _ipcbus_completion "$@"
else
    compdef _ipcbus_completion ipcbus
fi
"""

_FISH: Final = r"""
function __ipcbus_completion
    set -l asked (commandline -cp | string collect)
    set -l called (commandline -po)[1]
    for each in (env _IPCBUS_COMPLETE=fish _IPCBUS_LINE=$asked $called 2>/dev/null)
        set -l columns (string split -m 2 \t -- $each)
        switch $columns[1]
            case file
                __fish_complete_path (commandline -ct)
            case dir
                __fish_complete_directories (commandline -ct)
            case plain
                echo -s $columns[2] \t $columns[3]
        end
    end
end
complete --no-files --command ipcbus --arguments '(__ipcbus_completion)'
"""

SCRIPTS: Final = {"bash": _BASH.lstrip(), "zsh": _ZSH.lstrip(), "fish": _FISH.lstrip()}
"""The script of each shell; `eval` or `source` runs it and switches completion on."""


def answer(cli: click.Command) -> None:
    """Prints the completions of the line in the environment."""
    shell, line = os.environ[COMPLETE_VARIABLE], os.environ.get(_LINE, "")
    words, word, quote = split(line)
    option, is_one, value = word.partition("=") if word.startswith("--") else (word, "", word)
    head = f"{option}=" if is_one else ""
    try:
        found = ShellComplete(cli, {}, "ipcbus", COMPLETE_VARIABLE).get_completions(words[1:], word)
    except Exception:
        return
    for item in found:
        text = str(item.value)
        if shell == "bash":
            text = _for_bash(text, value, quote)
        elif shell == "fish":
            text = head + text
        print(item.type, text, " ".join((item.help or "").split()), sep="\t")


def split(line: str) -> tuple[list[str], str, str]:
    """Splits a line into words as a shell does.

    Returns:
        The finished words, the unfinished word at the end, which may be empty, and the quote that is open in it.
    """
    words: list[str] = []
    word, quote, begun, escaped = "", "", False, False
    for character in line:
        if escaped:
            word, escaped = word + character, False
        elif character == "\\" and quote != "'":
            escaped = begun = True
        elif quote:
            word, quote = (word, "") if character == quote else (word + character, quote)
        elif character in "'\"":
            quote, begun = character, True
        elif character.isspace():
            if begun:
                words.append(word)
            word, begun = "", False
        else:
            word, begun = word + character, True
    return words, word, quote


def _for_bash(value: str, typed: str, quote: str) -> str:
    """Returns what bash inserts: the part of a value behind the last character at which bash breaks words, quoted.

    Without quotes, a topic named `$(reboot)` would run at the next Enter.
    """
    if quote:
        return value.replace("'", r"'\''") if quote == "'" else re.sub(r'([$`"\\])', r"\\\1", value)
    begin = max((typed.rfind(each) + 1 for each in os.environ.get(_BREAKS, "") if each in ":=@"), default=0)
    return re.sub(r"([^\w@%+=:,./-])", r"\\\1", value[begin:] if value.startswith(typed[:begin]) else value)
