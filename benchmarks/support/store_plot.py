"""Time over the number of clients, for every store: one chart for each figure."""

from __future__ import annotations

from typing import Any

from support import chart
from support.chart import COLOURS, Chart

DRAWN = ("barrier", "all-gather 64 B", "all-gather 4 KiB", "start", "join", "join seen by all", "set", "get")
COLUMNS = 2


def save(rows: list[dict[str, Any]], kinds: list[str]) -> None:
    """Of figures that were measured with several numbers of clients, by somebody."""
    colours = dict(zip(kinds, COLOURS, strict=False))
    charts = []
    for figure in DRAWN:
        curves = {kind: _curve(rows, figure, kind) for kind in kinds}
        curves = {kind: points for kind, points in curves.items() if len(points) > 1}
        if curves:
            title = f"{figure}: ms over clients"
            charts.append(Chart(title, curves, lambda x: f"{x:.0f}", y_is_log=True, height=320, colours=colours))
    if charts:
        chart.save("store", charts, COLUMNS)


def _curve(rows: list[dict[str, Any]], figure: str, kind: str) -> list[tuple[float, float]]:
    found = [row for row in rows if row["figure"] == figure and kind in row["values"]]
    return sorted((row["clients"], row["values"][kind] / 1e3) for row in found)
