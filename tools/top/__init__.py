"""`ipcbus top`: the live view.

`live` runs it; `roster` says which lines there are, `view` what keys do, `screen` and the panes beside it draw. All but
`command`, `live`, `terminal` and `host` are pure: from a snapshot, a view and a size to lines of text.
"""
