"""Small pieces of HTML: escaped text, pictures inside the page, tables."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

from matplotlib.figure import Figure

_DPI = 130
_WIDE = 6.0


@dataclass(frozen=True)
class Section:
    """A part of the page: its anchor, its title, and its HTML."""

    name: str
    title: str
    body: str

    def html(self) -> str:
        return f'<section id="{self.name}">\n<h2>{text(self.title)}</h2>\n{self.body}\n</section>'


def text(words: object) -> str:
    """Any text, safe between tags and inside quotes; a number stays on one line with its per cent sign."""
    return escape(str(words), quote=True).replace(" %", "&nbsp;%")


def paragraph(words: object) -> str:
    return f"<p>{text(words)}</p>"


def plot(figure: Figure, alt: str) -> str:
    """A figure on a white card, never larger than it was drawn; a wide one can be moved sideways on a small screen."""
    kind = "plot wide" if figure.get_size_inches()[0] > _WIDE else "plot"
    return f'<figure class="{kind}">{picture(figure, alt)}</figure>'


def picture(figure: Figure, alt: str, dpi: int = _DPI) -> str:
    """The figure as a PNG inside the page."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=dpi)
    data = base64.b64encode(file.getvalue()).decode()
    width, height = (round(96 * side) for side in figure.get_size_inches())
    return f'<img src="data:image/png;base64,{data}" width="{width}" height="{height}" alt="{text(alt)}">'


def table(rows: Iterable[Iterable[object]], head: Iterable[object] = (), kind: str = "") -> str:
    """Rows of text, the first cell of each its name; `kind` is a class of the style sheet."""
    top = "".join(f'<th scope="col">{text(cell)}</th>' for cell in head)
    lines = "\n".join(_row(*row) for row in rows)
    above = f"<thead><tr>{top}</tr></thead>" if top else ""
    return f'<div class="scroll"><table class="{kind}">{above}<tbody>\n{lines}\n</tbody></table></div>'


def _row(name: object, *cells: object) -> str:
    return f'<tr><th scope="row">{text(name)}</th>' + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>"


def details(summary: str, body: str) -> str:
    """Hidden until asked for."""
    return f"<details><summary>{text(summary)}</summary>\n{body}\n</details>"
