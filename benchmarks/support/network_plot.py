"""Bandwidth over size for everybody."""

from __future__ import annotations

from typing import Any

from support import chart


def save(rows: list[dict[str, Any]]) -> None:
    """Of the rows that are single pieces."""
    singles = sorted((row for row in rows if "x" not in row["shape"] and row["shape"] != "kv122"), key=_size)
    speeds: dict[str, list[tuple[float, float]]] = {
        name: [(_size(row), _size(row) / row["median_us"][name] / 1e3) for row in singles]
        for name in singles[0]["median_us"]
    }
    chart.save("network", [chart.Chart("GB/s", speeds, _label)])


def _size(row: dict[str, Any]) -> int:
    return int(row["bytes"])


def _label(size: float) -> str:
    return f"{int(size) >> 20} MiB" if size >= 1 << 20 else f"{int(size) >> 10} KiB"
