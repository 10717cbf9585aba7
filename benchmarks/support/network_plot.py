"""Bandwidth over size for everybody, as an SVG that needs nothing to be drawn with."""

from __future__ import annotations

import math
from typing import Any

from support.report import RESULTS

WIDTH, HEIGHT, LEFT, BOTTOM = 760, 420, 60, 40
COLOURS = ("#1b6ac9", "#888888", "#c2571b", "#2e8b57", "#8e44ad", "#b8860b")


def save(rows: list[dict[str, Any]]) -> None:
    """Of the rows that are single pieces."""
    singles = sorted((row for row in rows if "x" not in row["shape"] and row["shape"] != "kv122"), key=_size)
    names = list(singles[0]["median_us"])
    speeds = {name: [(_size(row), _size(row) / row["median_us"][name] / 1e3) for row in singles] for name in names}
    highest = max(speed for points in speeds.values() for _, speed in points) * 1.05
    first, last = math.log2(_size(singles[0])), math.log2(_size(singles[-1]))

    def place(size: float, speed: float) -> tuple[float, float]:
        x = LEFT + (math.log2(size) - first) / (last - first) * (WIDTH - LEFT - 120)
        return x, HEIGHT - BOTTOM - speed / highest * (HEIGHT - BOTTOM - 20)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for step in range(5):
        speed = highest * step / 4
        _, y = place(2**first, speed)
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - 120}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{speed:.1f}</text>')
    for row in singles:
        x, _ = place(_size(row), 0)
        parts.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{_label(_size(row))}</text>')
    for (name, points), colour in zip(speeds.items(), COLOURS, strict=False):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x, y = place(*points[-1])
        parts.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{LEFT - 40}" y="14">GB/s</text></svg>')
    path = RESULTS / "network.svg"
    path.write_text("\n".join(parts) + "\n")
    print(f"written: benchmarks/results/{path.name}")


def _size(row: dict[str, Any]) -> int:
    return int(row["bytes"])


def _label(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
