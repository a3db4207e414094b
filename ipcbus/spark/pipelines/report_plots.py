"""The plots of a report, as SVG to put into the page."""

from __future__ import annotations

import io
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ipcbus.spark.pipelines.latency import GROWTH, ZERO
from ipcbus.spark.pipelines.row_columns import SECOND_NS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ipcbus.spark.pipelines.report_data import ReportData

COLOURS: Final = ("#2563eb", "#ea580c", "#059669", "#9333ea", "#dc2626", "#0891b2", "#ca8a04", "#db2777")
OTHERS: Final = "#94a3b8"
UP: Final = "#059669"
DOWN: Final = "#dc2626"

_STYLE: Final[Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": "#cbd5e1",
    "axes.labelcolor": "#475569",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e8f0",
    "grid.linewidth": 0.8,
    "xtick.color": "#475569",
    "ytick.color": "#475569",
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}
_WIDTH: Final = 9.6


def throughput(data: ReportData) -> str:
    """Returns a stacked plot of messages per second over time, by topic."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        figure, axes = _figure(3.4)
        steps = sorted({line["start_ns"] for line in data.series})
        first, last = steps[0], steps[-1]
        places = range(first, last + data.step_ns, data.step_ns)
        names: list[str | None] = [*data.topics]
        if any(line["topic"] is None for line in data.series):
            names.append(None)
        found = {(line["topic"], line["start_ns"]): line["messages"] for line in data.series}
        seconds = data.step_ns / SECOND_NS
        # The rate is known for each step; the last step needs an end.
        rates = [[found.get((name, at), 0) / seconds for at in (*places, places[-1])] for name in names]
        times = [(at - first) / SECOND_NS for at in (*places, places[-1] + data.step_ns)]
        labels = [_short(name) if name is not None else "others" for name in names]
        axes.stackplot(times, rates, labels=labels, colors=[_colour(data, name) for name in names], step="post")
        axes.set_xlim(times[0], times[-1])
        axes.set_ylim(bottom=0)
        axes.set_ylabel("messages/s")
        axes.set_xlabel(f"seconds since {_time(first)}")
        axes.yaxis.set_major_formatter(_quantity)
        _legend(axes)
        return _svg(figure)


def latency(data: ReportData) -> str:
    """Returns a plot of the share of messages that were received within a time, by topic."""
    from matplotlib import rc_context

    with rc_context(_STYLE):
        figure, axes = _figure(3.4)
        for name in data.topics:
            lines = [line for line in data.histogram if line["topic"] == name and line["bucket"] >= ZERO]
            total = sum(line["messages"] for line in lines)
            if not total:
                continue
            reached, times, shares = 0, [], []
            for line in lines:
                reached += line["messages"]
                times.append(1.0 if line["bucket"] == ZERO else GROWTH ** (line["bucket"] + 1))
                shares.append(100 * reached / total)
            axes.step(times, shares, where="post", label=_short(name), color=_colour(data, name), linewidth=1.6)
        axes.set_xscale("log")
        axes.set_ylim(0, 101)
        axes.set_ylabel("% of messages")
        axes.set_xlabel("received within")
        axes.xaxis.set_major_formatter(_duration)
        _legend(axes)
        return _svg(figure)


def bars(data: ReportData) -> str:
    """Returns a candle plot of the busiest symbol, with its volume."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, 4.2), layout="constrained")
        prices, volumes = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        first = data.bars[0]["step_ns"]
        width = data.bars_step_ns / SECOND_NS
        for bar in data.bars:
            middle = (bar["step_ns"] - first) / SECOND_NS + width / 2
            colour = UP if bar["close"] >= bar["open"] else DOWN
            prices.vlines(middle, bar["low"], bar["high"], color=colour, linewidth=1)
            low, high = sorted((bar["open"], bar["close"]))
            prices.bar(middle, high - low, width * 0.7, bottom=low, color=colour, edgecolor=colour, linewidth=0.8)
            volumes.bar(middle, bar["volume"], width * 0.7, color=colour, alpha=0.6)
        prices.set_ylabel("price")
        volumes.set_ylabel("volume")
        volumes.set_xlabel(f"seconds since {_time(first)}, bars of {width:g} s")
        for axes in (prices, volumes):
            axes.ticklabel_format(useOffset=False, style="plain")
        return _svg(figure)


def _figure(height: float) -> tuple[Figure, Axes]:
    # Not through pyplot, which keeps figures and needs a window system.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots()


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, loc="center left", bbox_to_anchor=(1.0, 0.5), handlelength=1.2)


def _colour(data: ReportData, topic: str | None) -> str:
    return OTHERS if topic is None else COLOURS[data.topics.index(topic) % len(COLOURS)]


def _short(text: str, most: int = 28) -> str:
    """Returns a name that fits beside a plot; matplotlib would leave a name that begins with _ out of the legend."""
    plain = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    plain = f"\N{ZERO WIDTH SPACE}{plain}" if plain.startswith("_") else plain
    return plain if len(plain) <= most else f"{plain[: most - 1]}\N{HORIZONTAL ELLIPSIS}"


def _time(ns: int) -> str:
    return datetime.fromtimestamp(ns / SECOND_NS, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _quantity(value: float, _place: object = None) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g} {letter}"
    return f"{value:g}"


def _duration(ns: float, _place: object = None) -> str:
    for size, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if ns >= size:
            return f"{ns / size:g} {unit}"
    return f"{ns:g} ns"


def _svg(figure: Figure) -> str:
    """Returns the plot without parts that name other addresses: declarations and metadata."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    return re.sub(r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img">', text, count=1)
