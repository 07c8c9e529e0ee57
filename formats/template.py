"""A record's layout as data, and the function that renders it.

A layout is read from top to bottom: literal XML, elements with their source in the job and the rule they obey, and
calls for what needs more thought. `compiled` turns it into one straight function: the common case of an element, a
value within its rule, is decided in place, everything else by the element's maker in `formats.element`. It does what a
loop over the layout would do, several times as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

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


class Element(Protocol):
    """An element of a layout, but for those of instants; `source` is an expression over the layout's arguments."""

    source: str

    def maker(self) -> NumberElement | TextElement:
        """The function that renders any value."""
        ...

    def usual(self, value: str) -> tuple[str, str]:
        """For a variable of that name: the condition of the common case, and its text with `{expressions}`."""
        ...


class Number(msgspec.Struct, frozen=True):
    """An element of a whole number."""

    source: str
    rule: NumberRule
    name: str
    attributes: str = ""

    def maker(self) -> NumberElement:
        """See `Element`."""
        return number_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """See `Element`."""
        opening, closing = tags(self.name, self.attributes)
        return f"{self.rule.least} <= {value} <= {self.rule.largest}", f"{opening}{{{value}}}{closing}"


class Duration(msgspec.Struct, frozen=True):
    """An element of a duration given in milliseconds; the rule is about its whole seconds, half a second up."""

    source: str
    rule: NumberRule
    name: str
    attributes: str = ""

    def maker(self) -> NumberElement:
        """See `Element`."""
        return duration_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """See `Element`."""
        opening, closing = tags(self.name, self.attributes)
        least, largest = self.rule.least * 1000 - 500, self.rule.largest * 1000 + 499
        return f"{least} <= {value} <= {largest}", f"{opening}PT{{({value} + 500) // 1000}}S{closing}"


class Instant(msgspec.Struct, frozen=True):
    """An element of an instant given in epoch seconds. Several of one source share the text of their time."""

    source: str
    name: str
    attributes: str = ""
    only_if: str = ""

    def maker(self) -> NumberElement:
        """See `Element`."""
        return instant_element(self.name, self.attributes)


class Text(msgspec.Struct, frozen=True):
    """An element of a text."""

    source: str
    rule: TextRule
    name: str
    attributes: str = ""

    def maker(self) -> TextElement:
        """See `Element`."""
        return text_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """See `Element`."""
        opening, closing = tags(self.name, self.attributes)
        return f"len({value}) <= {self.rule.longest} and is_plain({value})", f"{opening}{{{value}}}{closing}"


class Call(msgspec.Struct, frozen=True):
    """An expression that gives XML."""

    source: str


class Shared(msgspec.Struct, frozen=True):
    """What many runs share: an expression for a `FragmentCache`, and one for the key into it."""

    source: str
    key: str


Part = str | Call | Shared | Number | Duration | Instant | Text


def compiled(arguments: Sequence[str], layout: Iterable[Part], names: dict[str, Any]) -> Callable[..., str]:
    """The function of these arguments that renders the layout; `notes` must be among the arguments.

    `names` are what the expressions of the layout use besides the arguments.
    """
    known: dict[str, Any] = {
        **names, "hours": HOURS, "minutes_and_seconds": MINUTES_AND_SECONDS, "is_plain": is_plain,
    }  # fmt: skip
    lines: list[str] = []
    text = ""
    clocks: dict[str, str] = {}
    for position, part in enumerate(layout):
        if isinstance(part, str):
            text += part.replace("{", "{{").replace("}", "}}")
            continue
        xml, maker = f"xml{position}", f"make{position}"
        text += f"{{{xml}}}"
        # each in the layout's order, so that notes come in that order
        if isinstance(part, Call):
            lines.append(f"{xml} = {part.source}")
        elif isinstance(part, Shared):
            lines += [
                f"key = {part.key}",
                f"{xml} = {part.source}.get(key)",
                f"if {xml} is None: {xml} = {part.source}.render(key, job, notes)",
            ]
        elif isinstance(part, Instant):
            known[maker] = part.maker()
            if part.source not in clocks:
                clocks[part.source] = str(position)
                lines += [
                    f"value{position} = {part.source}",
                    f"hour{position} = value{position} is not None and hours[value{position} // 3600]",
                    f"if hour{position}: hour{position} += minutes_and_seconds[value{position} % 3600]",
                ]
            of = clocks[part.source]
            opening, closing = tags(part.name, part.attributes)
            element = f"f{opening + f'{{hour{of}}}' + closing!r} if hour{of} else {maker}(value{of}, notes)"
            lines.append(f"{xml} = ({element}) if {part.only_if} else ''" if part.only_if else f"{xml} = {element}")
        else:
            value = f"value{position}"
            condition, usual = part.usual(value)
            known[maker] = part.maker()
            lines += [
                f"{value} = {part.source}",
                f"{xml} = '' if {value} is None else f{usual!r} if {condition} else {maker}({value}, notes)",
            ]
    body = "\n".join(f"    {line}" for line in [*lines, f"return f{text!r}"])
    exec(f"def render({', '.join(arguments)}):\n{body}\n", known)  # noqa: S102 the layout is this package's own text
    render: Callable[..., str] = known["render"]
    return render
