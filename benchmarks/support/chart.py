"""Curves as an SVG that needs nothing to be drawn with, and as a PNG where rsvg-convert is here."""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from support.report import RESULTS

COLOURS = ("#1b6ac9", "#888888", "#c2571b", "#2e8b57", "#8e44ad", "#b8860b")
TOP, LEFT, BOTTOM, RIGHT = 20, 60, 40, 120
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Chart:
    """Curves over a logarithmic x axis. `y_is_log`: from a power of ten to a power of ten; otherwise from 0."""

    title: str
    curves: Mapping[str, Points]
    x_label: Callable[[float], str]
    y_is_log: bool = False
    width: int = 760
    height: int = 420
    colours: dict[str, str] = field(default_factory=dict)  # by curve; else in order

    def parts(self) -> list[str]:
        """Its elements, at the origin."""
        drawn = [f'<text x="{LEFT - 40}" y="14">{self.title}</text>']
        for y in self._steps():
            at = self._y(y)
            drawn.append(f'<line x1="{LEFT}" x2="{self.width - RIGHT}" y1="{at:.1f}" y2="{at:.1f}" stroke="#dddddd"/>')
            label = f"{y:g}" if self.y_is_log else f"{y:.1f}"
            drawn.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{label}</text>')
        for x in sorted({x for points in self.curves.values() for x, _ in points}):
            place = f'x="{self._x(x):.1f}" y="{self.height - BOTTOM + 18}"'
            drawn.append(f'<text {place} text-anchor="middle">{self.x_label(x)}</text>')
        for (name, points), default in zip(self.curves.items(), COLOURS, strict=False):
            colour = self.colours.get(name, default)
            places = [(self._x(x), self._y(y)) for x, y in points]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
            drawn += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
            x, y = places[-1]
            drawn.append(f'<text x="{x + 8:.1f}" y="{y + 4:.1f}" fill="{colour}">{name}</text>')
        return drawn

    def _values(self) -> list[float]:
        return [y for points in self.curves.values() for _, y in points]

    def _decades(self) -> tuple[int, int]:
        lowest, highest = math.log10(min(self._values())), math.log10(max(self._values()))
        return math.floor(lowest), max(math.floor(lowest) + 1, math.ceil(highest))

    def _steps(self) -> list[float]:
        if self.y_is_log:
            first, last = self._decades()
            return [10.0**power for power in range(first, last + 1)]
        return [max(self._values()) * 1.05 * step / 4 for step in range(5)]

    def _x(self, x: float) -> float:
        places = [math.log2(place) for points in self.curves.values() for place, _ in points]
        return LEFT + (math.log2(x) - min(places)) / ((max(places) - min(places)) or 1) * (self.width - LEFT - RIGHT)

    def _y(self, y: float) -> float:
        if self.y_is_log:
            first, last = self._decades()
            share = (math.log10(y) - first) / (last - first)
        else:
            share = y / (max(self._values()) * 1.05)
        return self.height - BOTTOM - share * (self.height - BOTTOM - TOP)


def save(name: str, charts: Sequence[Chart], columns: int = 1) -> None:
    """All of them on one page, of the size of the first, row by row."""
    width, height = charts[0].width, charts[0].height
    rows = math.ceil(len(charts) / columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width * columns}" height="{height * rows}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
    ]
    for number, chart in enumerate(charts):
        place = f"{number % columns * width},{number // columns * height}"
        parts += [f'<g transform="translate({place})">', *chart.parts(), "</g>"]
    path = RESULTS / f"{name}.svg"
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")
    print(f"written: benchmarks/results/{path.name}")
    converter = shutil.which("rsvg-convert")
    if converter is None:
        print("no PNG: rsvg-convert (Debian, Ubuntu: librsvg2-bin) is not here")
        return
    subprocess.run([converter, "--output", str(path.with_suffix(".png")), str(path)], check=True)
    print(f"written: benchmarks/results/{path.with_suffix('.png').name}")
