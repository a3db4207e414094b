"""`ipcbus top`: the live view.

`live_view` runs it; `rows` says which lines there are, `view` what keys do, `screen` and the panes beside it draw. All
but `live_view`, `terminal` and `host` are pure functions: from a snapshot, a view and a size to lines of text.
"""
