"""A picture of the figures, drawn by hand: an SVG needs no library."""

from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, BAR = 760, 40, 230, 22


def bars(title: str, figures: Sequence[tuple[str, float]], unit: str) -> list[str]:
    """A bar for each figure, as long as it is large."""
    most = max((value for _, value in figures), default=1) or 1
    lines = [f'<text x="10" y="24" class="title">{escape(title)}</text>']
    for place, (name, value) in enumerate(figures):
        top = HEIGHT + place * (BAR + 8)
        length = max(1.0, (WIDTH - LEFT - 130) * value / most)
        lines += [
            f'<text x="{LEFT - 10}" y="{top + 16}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" rx="3"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{top + 16}">{value:,.0f} {escape(unit)}</text>',
        ]
    return lines


def drawing(charts: Sequence[tuple[str, Sequence[tuple[str, float]], str]]) -> str:
    """All charts, one below the other."""
    heights = [HEIGHT + len(figures) * (BAR + 8) + 24 for _, figures, _ in charts]
    tops = [sum(heights[:number]) for number in range(len(charts) + 1)]
    groups = [
        f'<g transform="translate(0 {top})">{"".join(bars(*chart))}</g>'
        for chart, (top, _) in zip(charts, pairwise(tops), strict=True)
    ]
    style = "text{font:13px sans-serif;fill:#333}.title{font-weight:bold}rect{fill:#3b7dd8}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{tops[-1]}">'
        f'<style>{style}</style><rect width="100%" height="100%" style="fill:white"/>{"".join(groups)}</svg>\n'
    )
