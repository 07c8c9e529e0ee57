"""A statement as PDF: A4, as many pages as it needs, each with the number of the statement and of the page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from textwrap import wrap
from typing import Final

from fpdf import FPDF
from fpdf.enums import Align, TableBordersLayout, VAlign, XPos, YPos
from fpdf.fonts import FontFace, TTFFont
from fpdf.table import Table
from msgspec import convert, to_builtins

from publisher.report.statements.document import HEADINGS, NUMBERS, USER_HEADINGS, StatementDocument, StatementLine

_FONT: Final = "DejaVu"
_MARGIN_MM: Final = 18
_NUMBER_MM, _LEAST_ITEM_MM, _SPARE_MM = 9, 40, 2.8
"""Widths of columns, and of the space beside texts."""
_LINE_MM: Final = 4.6
_PAGE_MM: Final = 20
"""The room for the number of the page."""
_MOST_IN_ROW: Final = 250
"""Letters of a cell. fpdf refuses a row that is higher than a page: the widest letters of the font, in the narrowest
column for texts, need 170 mm."""
_MOST_IN_FOOTER: Final = 300
_GREY: Final = (90, 90, 90)
_LIGHT: Final = (242, 242, 242)


class _StatementPdf(FPDF):
    """The pages of a statement."""

    def __init__(self, made: StatementDocument) -> None:
        super().__init__(format="A4")
        self._made = made
        fonts = _fonts()
        self.add_font(_FONT, fname=fonts / "DejaVuSans.ttf")
        self.add_font(_FONT, "B", fname=fonts / "DejaVuSans-Bold.ttf")
        self.set_margins(_MARGIN_MM, _MARGIN_MM)
        self.set_auto_page_break(auto=True, margin=_MARGIN_MM + 4)
        self.set_title(f"{made.title}: {made.number}")
        self.set_creator("usage-publisher")
        self.set_producer("usage-publisher")
        self.set_lang("en")
        self.set_creation_date(datetime.fromtimestamp(0, UTC))

    def close(self) -> None:
        """Close the files of the fonts."""
        for font in self.fonts.values():
            if isinstance(font, TTFFont):
                font.ttfont.close()

    def footer(self) -> None:
        """Write the number of the statement and the page, below each page."""
        self.set_y(-_MARGIN_MM)
        self.set_font(_FONT, size=8)
        self.set_text_color(*_GREY)
        number = _fitting(self, self._made.number, 120)
        self.cell(self.epw - _PAGE_MM, 6, number, align=Align.L)
        self.cell(0, 6, f"page {self.page_no()} of {{nb}}", align=Align.L)  # the library's name of their number
        self.set_text_color(0)


def to_pdf(made: StatementDocument) -> bytes:
    """The document as PDF. Letters that the font lacks are question marks: HTML has them."""
    made = _drawable(made)
    with closing(_drawn(made)) as pdf:
        return bytes(pdf.output())


def _drawn(made: StatementDocument) -> _StatementPdf:
    pdf = _StatementPdf(made)
    pdf.add_page()
    _block(pdf, made.sender, 9)
    pdf.ln(4)
    pdf.set_font(_FONT, "B", 16)
    pdf.multi_cell(0, 8, made.title, new_x=XPos.LMARGIN, new_y=YPos.NEXT, align=Align.L)
    pdf.ln(4)
    _addressed(pdf, made)
    pdf.ln(5)
    _items(pdf, made)
    pdf.ln(3)
    _users(pdf, made)
    pdf.set_text_color(*_GREY)
    for note in made.notes:
        _block(pdf, (note,), 8)
        pdf.ln(1.5)
    pdf.set_text_color(0)
    pdf.ln(2)
    _block(pdf, made.footer, 9)
    return pdf


def _block(pdf: FPDF, lines: tuple[str, ...], size: float, width: float = 0) -> None:
    pdf.set_font(_FONT, size=size)
    for line in lines:
        pdf.multi_cell(width, size * 0.5, line, new_x=XPos.LEFT, new_y=YPos.NEXT, align=Align.L)


def _addressed(pdf: FPDF, made: StatementDocument) -> None:
    """The recipient on the left, number, date, and so on on the right."""
    top = pdf.get_y()
    _block(pdf, made.recipient, 10, 78)
    below = pdf.get_y()
    pdf.set_y(top)
    label_mm, value_mm = 32, 54
    for label, value in made.facts:
        pdf.set_x(pdf.w - _MARGIN_MM - label_mm - value_mm)
        pdf.set_font(_FONT, size=8.5)
        pdf.set_text_color(*_GREY)
        pdf.cell(label_mm, _LINE_MM, label)
        pdf.set_text_color(0)
        pdf.multi_cell(value_mm, _LINE_MM, value, new_x=XPos.LMARGIN, new_y=YPos.NEXT, align=Align.L)
    pdf.set_y(max(below, pdf.get_y()))


def _items(pdf: FPDF, made: StatementDocument) -> None:
    """The table; its headings are repeated on each page."""
    pdf.set_font(_FONT, size=8.5)
    pdf.set_draw_color(190)
    bold = FontFace(emphasis="BOLD")
    sides = tuple(Align.R if place in NUMBERS else Align.L for place in range(len(HEADINGS)))
    with pdf.table(
        col_widths=_widths_mm(pdf, made), width=pdf.epw, text_align=sides, line_height=_LINE_MM, v_align=VAlign.T,
        borders_layout=TableBordersLayout.HORIZONTAL_LINES, headings_style=FontFace(emphasis="BOLD", fill_color=_LIGHT),
        padding=(0.8, 1), align=Align.L,
    ) as table:  # fmt: skip
        table.row(HEADINGS)
        for section in made.sections:
            table.row().cell(section.title, colspan=len(HEADINGS), style=bold, align=Align.L)
            for line in section.lines:
                _item(table, line)
            _sum(table, f"Subtotal {section.title}", section.subtotal, bold)
        _sum(table, f"Total {made.currency}", made.total, FontFace(emphasis="BOLD", fill_color=_LIGHT))
        if made.year:
            _sum(table, *made.year, bold)


def _users(pdf: FPDF, made: StatementDocument) -> None:
    """The lines of users."""
    if not made.users:
        return
    pdf.set_font(_FONT, size=8.5)
    with pdf.table(
        col_widths=(3, 4, 2), width=pdf.epw, text_align=(Align.L, Align.L, Align.R), line_height=_LINE_MM,
        v_align=VAlign.T, borders_layout=TableBordersLayout.HORIZONTAL_LINES, padding=(0.8, 1), align=Align.L,
        headings_style=FontFace(emphasis="BOLD", fill_color=_LIGHT),
    ) as table:  # fmt: skip
        table.row(USER_HEADINGS)
        for line in made.users:
            for cells in _rows(line):
                table.row(cells)
    pdf.ln(3)


def _widths_mm(pdf: FPDF, made: StatementDocument) -> tuple[float, ...]:
    """The widths of the columns: as much as the amounts need, and the rest for the items."""
    rows = [HEADINGS, *(line.cells for section in made.sections for line in section.lines)]
    pdf.set_font(_FONT, "B", size=8.5)
    widths = [max(pdf.get_string_width(row[place]) for row in rows) + _SPARE_MM for place in range(2, len(HEADINGS))]
    pdf.set_font(_FONT, size=8.5)
    room = pdf.epw - _NUMBER_MM - _LEAST_ITEM_MM
    widths = [width * min(1.0, room / sum(widths)) for width in widths]
    return (_NUMBER_MM, pdf.epw - _NUMBER_MM - sum(widths), *widths)


def _item(table: Table, line: StatementLine) -> None:
    number, name, *amounts = line.cells
    if len(name) + len(line.applies_to) <= _MOST_IN_ROW:
        table.row((number, f"{name}\n({line.applies_to})" if line.applies_to else name, *amounts))
        return
    applies_to = _rows((f"({line.applies_to})",)) if line.applies_to else []
    first, *more = [*_rows((name,)), *applies_to]
    table.row((number, *first, *amounts))
    for text in more:
        table.row(("", *text, *[""] * len(amounts)))


def _rows(cells: Sequence[str]) -> list[tuple[str, ...]]:
    """The cells of a row; of several rows if a text is long, so that pages can end within it."""
    parts = [[cell] if len(cell) <= _MOST_IN_ROW else wrap(cell, _MOST_IN_ROW) or [""] for cell in cells]
    return list(zip_longest(*parts, fillvalue=""))


def _sum(table: Table, label: str, amount: str, style: FontFace) -> None:
    row = table.row()
    row.cell(label, colspan=len(HEADINGS) - 2, style=style, align=Align.L)
    row.cell(amount, colspan=2, style=style, align=Align.R)


def _fitting(pdf: FPDF, text: str, width_mm: float) -> str:
    """As much of a text as fits a width."""
    if pdf.get_string_width(text) <= width_mm:
        return text
    text = text[:_MOST_IN_FOOTER]
    while text and pdf.get_string_width(f"{text}…") > width_mm:
        text = text[:-1]
    return f"{text}…"


def _drawable(made: StatementDocument) -> StatementDocument:
    """The document without letters that the font lacks."""
    known = _letters()
    builtins = to_builtins(made)

    def drawable(value: object) -> object:
        if isinstance(value, str):
            return "".join(letter if ord(letter) in known else "?" for letter in value)
        if isinstance(value, dict):
            return {key: drawable(each) for key, each in value.items()}
        return [drawable(item) for item in value] if isinstance(value, list | tuple) else value

    return convert(drawable(builtins), StatementDocument)


def _fonts() -> Path:
    """The folder of the fonts, which matplotlib has."""
    from matplotlib import get_data_path  # noqa: PLC0415 - slow to load

    return Path(get_data_path()) / "fonts" / "ttf"


@lru_cache(maxsize=1)
def _letters() -> frozenset[int]:
    """The letters that both weights of the font have."""
    from matplotlib.font_manager import get_font  # noqa: PLC0415 - slow to load

    regular, bold = (
        frozenset(get_font(_fonts() / f"DejaVuSans{weight}.ttf").get_charmap()) for weight in ("", "-Bold")
    )
    return regular & bold
