"""Line charts as plain SVG text: no script, no outside resource, readable in light and dark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from electra_cli.report.text import safe

WIDTH, HEIGHT = 460, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 12, 34


@dataclass(frozen=True)
class Series:
    """One line of a chart; points with a value that is missing or not finite are left out."""

    name: str
    points: Sequence[tuple[float, float]]
    is_dotted: bool = False
    """Drawn as single dots, for measurements far apart."""
    marks: Sequence[tuple[str, float, float]] = ()
    """Named places on the line, drawn as dots of its colour."""


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers that lie within [low, high]."""
    if high <= low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [step * number for number in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number as an axis shows it: 1,500 → 1.5k."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g}{letter}"
    return f"{value:.3g}"


def line_chart(title: str, series: Sequence[Series], *, x_label: str = "step") -> str:
    """The chart, or a line that says why there is none."""
    drawn = [
        replace(line, points=[(x, y) for x, y in line.points if math.isfinite(x + y)]) for line in series
    ]
    drawn = [line for line in drawn if line.points]
    if not drawn:
        return f"<figure><figcaption>{safe(title)}</figcaption><p>nothing measured yet</p></figure>"
    shown = [(x, y) for line in drawn for x, y in (*line.points, *(mark[1:] for mark in line.marks))]
    x_low, x_high = _range([x for x, _ in shown])
    y_low, y_high = _range([y for _, y in shown])

    def at(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) * (WIDTH - _LEFT - _RIGHT)
        up = (y - y_low) / (y_high - y_low) * (HEIGHT - _TOP - _BOTTOM)
        return round(_LEFT + across, 1), round(HEIGHT - _BOTTOM - up, 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{safe(title)}">']
    for tick in nice_ticks(y_low, y_high):
        _, y = at(x_low, tick)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{short(tick)}</text>')
    for tick in nice_ticks(x_low, x_high):
        x, _ = at(tick, y_low)
        parts.append(f'<text x="{x}" y="{HEIGHT - _BOTTOM + 16}" text-anchor="middle">{short(tick)}</text>')
    label_x, label_y = WIDTH - _RIGHT, HEIGHT - 4
    parts.append(f'<text x="{label_x}" y="{label_y}" text-anchor="end">{safe(x_label)}</text>')
    for number, line in enumerate(drawn):
        places = [at(x, y) for x, y in line.points]
        name = f"{line.name} {short(line.points[-1][1])}"
        if line.is_dotted or len(places) == 1:
            parts += [_dot(number, x, y, name) for x, y in places]
        else:
            path = " ".join(f"{x},{y}" for x, y in places)
            parts.append(f'<polyline class="c{number % 6}" points="{path}">{_pointed(name)}</polyline>')
        parts += [_dot(number, *at(x, y), f"{mark} {short(y)}") for mark, x, y in line.marks]
    parts.append("</svg>")
    legend = " ".join(
        f'<span class="k{number % 6}">{safe(line.name)} {short(line.points[-1][1])}</span>'
        for number, line in enumerate(drawn)
    )
    return f"<figure><figcaption>{safe(title)} {legend}</figcaption>{''.join(parts)}</figure>"


def _pointed(name: str) -> str:
    """Shown under the pointer: with many series the colours repeat."""
    return f"<title>{safe(name)}</title>"


def _dot(number: int, x: float, y: float, name: str) -> str:
    return f'<circle class="c{number % 6}" cx="{x}" cy="{y}" r="2.6">{_pointed(name)}</circle>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    margin = (high - low) * 0.04 or abs(high) * 0.05 or 1.0
    return low - margin, high + margin
