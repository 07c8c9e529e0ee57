"""Statements of a month as documents: text, HTML and PDF, one of each for every payer."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from publisher.errors import OutputError
from publisher.report.held_amounts import plain
from publisher.report.views.charges import Statement, StatementItem, Statements
from publisher.whole_file import require_own_folder, write_whole

if TYPE_CHECKING:
    from jinja2 import Template

Kind = Literal["text", "html", "pdf"]
SUFFIXES: Final[dict[Kind, str]] = {"text": ".txt", "html": ".html", "pdf": ".pdf"}
_LINES_A_PAGE: Final = 58
_SMALL: Final = 0.001
_FONT: Final = "DejaVu Sans Mono"
_HEADINGS: Final = ("item", "quantity", "unit", "price", "group factor", "job factor", "amount")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._@-]")


def lines_of(one: Statement) -> list[tuple[str, ...]]:
    """The lines of a statement as text: what was used, price, factors, amount; adjustments; the total."""
    lines = [
        (
            item.name, _quantity(item), item.unit, plain(item.price), plain(item.group_factor),
            plain(item.job_factor), f"{item.amount:f}",
        )
        for item in one.items
    ]  # fmt: skip
    lines += [(f"Adjustment: {each.reason}", "", "", "", "", "", f"{each.amount:f}") for each in one.adjustments]
    return [*lines, ("Total", "", "", "", "", "", f"{one.total:f}")]


def to_text(made: Statements, one: Statement) -> str:
    """A statement as plain text."""
    return "\n".join(_text_lines(made, one)) + "\n"


def _text_lines(made: Statements, one: Statement) -> Iterator[str]:
    rows = [_HEADINGS, *([_shown(cell) for cell in line] for line in lines_of(one))]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
    yield _shown(made.site)
    yield f"Statement for {made.shown_month}"
    yield f"{made.by}: {_shown(one.payer)}"
    yield f"Amounts in {_shown(made.currency)}"
    if made.unfinished:
        yield made.unfinished
    if made.purged:
        yield made.purged
    yield ""
    for number, row in enumerate(rows):
        if number in {1, len(rows) - 1}:
            yield "-" * (sum(widths) + 2 * (len(widths) - 1))
        cells = [cell.ljust(width) if place in {0, 2} else cell.rjust(width)
                 for place, (cell, width) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        yield "  ".join(cells).rstrip()
    if one.left_out:
        yield ""
        yield "Each of these rounds to nothing and is not charged:"
        yield from map(_shown, left_out_of(one))


def left_out_of(one: Statement) -> list[str]:
    """The items that round to nothing, as text."""
    return [f"{item.name}, {_quantity(item)} {item.unit}" for item in one.left_out]


def _quantity(item: StatementItem) -> str:
    """So many decimals as show that it is something."""
    amount = float(item.quantity)
    return f"{amount:.3f}" if amount >= _SMALL else f"{amount:.2g}"


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def to_html(made: Statements, one: Statement) -> str:
    """A statement as one self-contained page; whatever a name holds is text in it."""
    shown = [[_shown(cell) for cell in line] for line in lines_of(one)]
    return _template().render(made=made, payer=_shown(one.payer), headings=_HEADINGS, lines=shown,
                              left_out=[_shown(text) for text in left_out_of(one)])  # fmt: skip


@lru_cache(maxsize=1)
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415

    return Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True).from_string(
        _HTML
    )


_HTML: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Statement for {{ made.shown_month }}: {{ payer }}</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
table { border-collapse: collapse; width: 100%; }
th, td { padding: .4rem .6rem; border-bottom: 1px solid #ccc; text-align: right; }
th:first-child, td:first-child, th:nth-child(3), td:nth-child(3) { text-align: left; }
tr:last-child td { border-top: 2px solid #1a1a1a; border-bottom: 0; font-weight: bold; }
@media print { body { margin: 0; } }
</style>
</head>
<body>
<h1>Statement for {{ made.shown_month }}</h1>
<p>{{ made.site }}<br>{{ made.by }}: <strong>{{ payer }}</strong><br>Amounts in {{ made.currency }}
{%- if made.unfinished %}<br>{{ made.unfinished }}{% endif %}
{%- if made.purged %}<br>{{ made.purged }}{% endif %}</p>
<table>
<thead><tr>{% for heading in headings %}<th scope="col">{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{% for line in lines %}
<tr>{% for cell in line %}<td>{{ cell }}</td>{% endfor %}</tr>
{% endfor %}
</tbody>
</table>
{% if left_out %}
<p>Each of these rounds to nothing and is not charged: {{ left_out | join("; ") }}.</p>
{% endif %}
</body>
</html>
"""


def to_pdf(made: Statements, one: Statement) -> bytes:
    """A statement as PDF, A4, as many pages as it needs."""
    from matplotlib.backends.backend_pdf import PdfPages  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    known = _letters()
    lines = ["".join(letter if ord(letter) in known else "?" for letter in line) for line in _text_lines(made, one)]
    pages = [lines[at : at + _LINES_A_PAGE] for at in range(0, len(lines), _LINES_A_PAGE)]
    widest = max(map(len, lines))
    written = BytesIO()
    about: dict[str, Any] = {
        "Title": f"Statement for {made.shown_month}",
        "Creator": "usage-publisher",
        "CreationDate": None,
    }
    with PdfPages(written, metadata=about) as file:
        for number, page in enumerate(pages, 1):
            figure = Figure(figsize=(8.27, 11.69))
            size = min(9.0, 7.07 * 72 / (0.602 * widest))  # a letter of DejaVu Sans Mono is 0.602 of its size wide
            shown: dict[str, Any] = {"family": _FONT, "size": size, "parse_math": False}
            figure.text(0.07, 0.95, "\n".join(page), va="top", linespacing=1.4, **shown)
            if len(pages) > 1:
                figure.text(0.93, 0.03, f"{number} of {len(pages)}", ha="right", **shown)
            file.savefig(figure)
    return written.getvalue()


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    """What the font of the PDF has: for another letter there would be a box, and a warning for each."""
    from matplotlib.font_manager import findfont, get_font  # noqa: PLC0415

    return frozenset(get_font(findfont(_FONT)).get_charmap())


def write(made: Statements, directory: Path, kinds: tuple[Kind, ...]) -> list[Path]:
    """Write every statement in these kinds into a folder; the files. Raises `OutputError`."""
    folder = directory / made.month
    files: list[Path] = []
    try:
        require_own_folder(folder)
        for one in made.all:
            for kind in kinds:
                file = folder / f"{_file_name(one.payer)}{SUFFIXES[kind]}"
                write_whole(file, document(made, one, kind))
                files.append(file)
    except OSError as error:
        raise OutputError(f"statements cannot be written to {folder}: {error.strerror}") from error
    return files


def document(made: Statements, one: Statement, kind: Kind) -> bytes:
    """A statement as a file."""
    if kind == "pdf":
        return to_pdf(made, one)
    text = to_text(made, one) if kind == "text" else to_html(made, one)
    return text.encode("utf-8", "backslashreplace")


def _file_name(payer: str) -> str:
    """A name of a file for any payer, never the same for two."""
    safe = _UNSAFE.sub("_", payer).lstrip(".")[:80]
    if safe == payer:
        return safe
    mark = hashlib.blake2b(payer.encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    return f"{safe or 'payer'}-{mark}"
