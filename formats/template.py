"""A record's layout as data, and the function that renders it.

A layout is read from top to bottom: literal XML, elements with their source in the job and the rule they obey, and
calls for what needs more thought. `compiled` turns it into one straight function: the common case of an element, a
value within its rule, is decided in place, everything else by the element's maker in `formats.element`. It does what a
loop over the layout would do, several times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec

from formats.element import (
    NumberElement,
    TextElement,
    duration_element,
    instant_element,
    number_element,
    tags,
    text_element,
)
from formats.rules import NumberRule, TextRule
from formats.xml_text import HOURS, MINUTES_AND_SECONDS, is_plain


class Number(msgspec.Struct, frozen=True):
    """An element of a whole number; `source` is an expression over the layout's arguments, as in all that follow."""

    source: str
    rule: NumberRule
    name: str
    attributes: str = ""

    def maker(self) -> NumberElement:
        """The function that renders any value."""
        return number_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """For a variable of that name: the condition of the common case, and its text with `{expressions}`."""
        opening, closing = tags(self.name, self.attributes)
        return f"{self.rule.least} <= {value} <= {self.rule.largest}", f"{opening}{{{value}}}{closing}"


class Duration(msgspec.Struct, frozen=True):
    """An element of a duration given in milliseconds; the rule is about its whole seconds, half a second up."""

    source: str
    rule: NumberRule
    name: str
    attributes: str = ""

    def maker(self) -> NumberElement:
        """See `Number`."""
        return duration_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """See `Number`."""
        opening, closing = tags(self.name, self.attributes)
        least, largest = self.rule.least * 1000 - 500, self.rule.largest * 1000 + 499
        return f"{least} <= {value} <= {largest}", f"{opening}PT{{({value} + 500) // 1000}}S{closing}"


class Instant(msgspec.Struct, frozen=True):
    """An element of an instant given in epoch seconds."""

    source: str
    name: str
    attributes: str = ""

    def maker(self) -> NumberElement:
        """See `Number`."""
        return instant_element(self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """See `Number`."""
        opening, closing = tags(self.name, self.attributes)
        condition = f"(hour_{value} := hours[{value} // 3600])"
        return condition, f"{opening}{{hour_{value}}}{{minutes_and_seconds[{value} % 3600]}}{closing}"


class Text(msgspec.Struct, frozen=True):
    """An element of a text."""

    source: str
    rule: TextRule
    name: str
    attributes: str = ""

    def maker(self) -> TextElement:
        """See `Number`."""
        return text_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """See `Number`."""
        opening, closing = tags(self.name, self.attributes)
        return f"len({value}) <= {self.rule.longest} and is_plain({value})", f"{opening}{{{value}}}{closing}"


class Together(msgspec.Struct, frozen=True):
    """Elements, one behind the other, that as a rule are all there and all usual: then they are written at once.

    Nothing else is different. Their sources must not add notes.
    """

    parts: tuple[Number | Duration | Instant, ...]


def together(*parts: Number | Duration | Instant) -> Together:
    """See `Together`."""
    return Together(parts)


class Call(msgspec.Struct, frozen=True):
    """An expression that gives XML."""

    source: str


class Shared(msgspec.Struct, frozen=True):
    """What many runs share: an expression for a `FragmentCache`, and one for the key into it."""

    source: str
    key: str


Element = Number | Duration | Instant | Text
Part = str | Call | Shared | Element | Together


class _Names:
    """Names for the variables and makers of a function in the making, and what they stand for."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known
        self._count = 0

    def new(self, kind: str, stands_for: object = None) -> str:
        """A name that is not taken; `stands_for`, if given, is known by it."""
        self._count += 1
        name = f"{kind}{self._count}"
        if stands_for is not None:
            self.known[name] = stands_for
        return name


def compiled(arguments: Sequence[str], layout: Iterable[Part], names: dict[str, Any]) -> Callable[..., str]:
    """The function of these arguments that renders the layout; `notes` must be among the arguments.

    `names` are what the expressions of the layout use besides the arguments.
    """
    taken = _Names({**names, "hours": HOURS, "minutes_and_seconds": MINUTES_AND_SECONDS, "is_plain": is_plain})
    lines: list[str] = []
    text = ""
    for part in layout:
        if isinstance(part, str):
            text += part.replace("{", "{{").replace("}", "}}")
            continue
        # each in the layout's order, so that notes come in that order
        xml = taken.new("xml")
        text += f"{{{xml}}}"
        lines += _lines(part, xml, taken)
    body = "\n".join(f"    {line}" for line in [*lines, f"return f{text!r}"])
    exec(f"def render({', '.join(arguments)}):\n{body}\n", taken.known)  # noqa: S102 the layout is this package's own text
    render: Callable[..., str] = taken.known["render"]
    return render


def _lines(part: Call | Shared | Element | Together, xml: str, taken: _Names) -> Iterator[str]:
    """The lines that put the XML of a part into the variable `xml`."""
    match part:
        case Call():
            yield f"{xml} = {part.source}"
        case Shared():
            yield f"key = {part.key}"
            yield f"{xml} = {part.source}.get(key)"
            yield f"if {xml} is None: {xml} = {part.source}.render(key, job, notes)"
        case Together():
            values = [taken.new("value") for _ in part.parts]
            yield from (f"{value} = {one.source}" for value, one in zip(values, part.parts, strict=True))
            usual = [one.usual(value) for value, one in zip(values, part.parts, strict=True)]
            there = " and ".join(f"{value} is not None and {usual[i][0]}" for i, value in enumerate(values))
            alone = " + ".join(f"({_alone(one, value, taken)})" for value, one in zip(values, part.parts, strict=True))
            yield f"{xml} = f{''.join(text for _, text in usual)!r} if {there} else {alone}"
        case _:
            value = taken.new("value")
            yield f"{value} = {part.source}"
            yield f"{xml} = {_alone(part, value, taken)}"


def _alone(part: Element, value: str, taken: _Names) -> str:
    """The expression for an element of which nothing is known."""
    condition, usual = part.usual(value)
    maker = taken.new("make", part.maker())
    absent = f"{value} is None"
    if isinstance(part, Number) and part.rule.least == 1:  # no positive number, and no element: zero is absent
        absent = f"not {value}"
    return f"'' if {absent} else f{usual!r} if {condition} else {maker}({value}, notes)"
