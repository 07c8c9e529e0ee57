"""A compiled layout gives what its elements give one by one, with the same notes in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from formats.base import Note
from formats.rule_codes import CannotRenderError
from formats.rules import NumberRule, TextRule
from formats.xml.layout import Call, Duration, Instant, Number, Text, compiled, text_element, together
from tests.strategies import any_int, any_text

COUNT = NumberRule("Count", 1, 2**31 - 1, "a rule")
AMOUNT = NumberRule("Amount", 0, 2**63 - 1, "a rule", "hold")
CODE = NumberRule("Code", -(2**31), 2**31 - 1, "a rule")
NAME = TextRule("Name", 12, "a rule")

PARTS = (
    Number("a", COUNT, "Count"),
    Duration("b", COUNT, "Wall", 'x:type="all"'),
    Instant("c", "End"),
    Number("d", AMOUNT, "Amount"),
    Number("e", CODE, "Code"),
)
LAYOUT = (
    "<R{}>", together(*PARTS[:3]), Text("t", NAME, "Name"), Call("'<Call/>' if t else ''"), *PARTS,
    together(*PARTS[3:]), "</R>",
)  # fmt: skip
_render = compiled(("a", "b", "c", "d", "e", "t", "notes"), LAYOUT, {})
_makers = [part.maker() for part in PARTS]
_name = text_element(NAME, "Name")


def one_by_one(*arguments: Any) -> str:
    *values, text, notes = arguments

    def of(first: int, behind: int) -> str:
        return "".join(_makers[n](values[n], notes) for n in range(first, behind))

    return f"<R{{}}>{of(0, 3)}{_name(text, notes)}{'<Call/>' if text else ''}{of(0, 5)}{of(3, 5)}</R>"


def reported(render: Callable[..., str], *values: Any) -> tuple[str, list[Note]]:
    """The result of a function, or its error, and its notes."""
    notes: list[Note] = []
    try:
        return render(*values, notes), notes
    except CannotRenderError as error:
        return str(error), []


any_value = st.none() | st.just(0) | st.integers(1, 10**6) | any_int


@given(st.tuples(any_value, any_value, any_value, any_value, any_value), st.none() | any_text)
def test_a_compiled_layout_is_its_elements_one_by_one(values: tuple[Any, ...], text: str | None) -> None:
    assert reported(_render, *values, text) == reported(one_by_one, *values, text)


def test_what_is_usual_is_written_at_once() -> None:
    notes: list[Note] = []
    xml = _render(3, 1499, 86_400, 0, -1, "Ada", notes)
    assert notes == []
    assert xml.startswith(
        '<R{}><Count>3</Count><Wall x:type="all">PT1S</Wall><End>1970-01-02T00:00:00Z</End><Name>Ada</'
    )
    assert xml.endswith("<Amount>0</Amount><Code>-1</Code></R>")
