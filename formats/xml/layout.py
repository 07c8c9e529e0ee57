"""A record's layout as data, and the function that renders it.

A layout is read from top to bottom: literal XML, elements with their source in the job and their rule, and calls for
everything else. `compiled` makes one straight function of it: the common case of an element, a value within its rule,
is handled in place, all other cases by the element's maker. It does the same as a loop over the layout, several times
as fast.

A maker makes one XML element: it is bound to name, attributes, and rule once, then called for every record. It gets a
value and the list of notes, and returns the element, or `""` for a value that is missing or omitted. The common case (a
value within its rule) is handled first, other values by `formats.fit`.

Parts of a record that many runs share (a user with groups, a queue on a machine, a host) are rendered once and cached;
only the parts that differ in every run are rendered each time. This makes the formats fast. A cache is bounded, and its
values are functions of the key and the format's view.

Also the message around XML records (a root element that declares the namespaces once, and one record on each line), and
ConsumableResource, the only element of UR and CAR for GPUs, energy, and other amounts of a source. No service reads it
today (SGAS and APEL ignore the element); it is for sites that keep the messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from formats import fit
from formats.base import CACHED_FRAGMENTS, Note
from formats.job import Job
from formats.rules import NameRule, NumberRule, TextRule
from formats.signed_text import referenced
from formats.text import (
    FIRST_INSTANT,
    HOURS,
    LAST_INSTANT,
    MINUTES_AND_SECONDS,
    date_time,
    duration_seconds,
    is_plain,
)
from formats.view import NamespaceStyle

NumberElement = Callable[[int | None, list[Note]], str]
TextElement = Callable[[str | None, list[Note]], str]


def tags(name: str, attributes: str) -> tuple[str, str]:
    """Opening and closing tag of an element."""
    return f"<{name} {attributes}>" if attributes else f"<{name}>", f"</{name}>"


def _named(rule: NumberRule, name: str) -> NumberRule:
    """The rule with the element's name, for notes: some rules apply to several elements."""
    return msgspec.structs.replace(rule, field=name.rpartition(":")[2])


def number_element(rule: NumberRule, name: str, attributes: str = "") -> NumberElement:
    """Element of a whole number."""
    opening, closing = tags(name, attributes)
    rule = _named(rule, name)
    least, largest = rule.least, rule.largest

    def element(value: int | None, notes: list[Note]) -> str:
        if value is None:
            return ""
        if least <= value <= largest:
            return f"{opening}{value}{closing}"
        number = fit.number(rule, value, notes)
        return f"{opening}{number}{closing}" if number else ""

    return element


def duration_element(rule: NumberRule, name: str, attributes: str = "") -> NumberElement:
    """Element of a duration given in milliseconds, written in whole seconds; the rule applies to the seconds."""
    opening, closing = tags(name, attributes)
    opening += "PT"
    closing = "S" + closing
    rule = _named(rule, name)
    least, largest = rule.least, rule.largest

    def element(value_ms: int | None, notes: list[Note]) -> str:
        if value_ms is None:
            return ""
        seconds = duration_seconds(value_ms)
        if least <= seconds <= largest:
            return f"{opening}{seconds}{closing}"
        number = fit.number(rule, seconds, notes)
        return f"{opening}{number}{closing}" if number else ""

    return element


def instant_element(name: str, attributes: str = "") -> NumberElement:
    """Element of an instant given in epoch seconds."""
    opening, closing = tags(name, attributes)

    def element(value: int | None, notes: list[Note]) -> str:
        if value is None:
            return ""
        if FIRST_INSTANT <= value <= LAST_INSTANT:
            return f"{opening}{date_time(value)}{closing}"
        fit.instant(name, value, notes)
        return ""

    return element


def text_element(rule: TextRule, name: str, attributes: str = "") -> TextElement:
    """Element of a text."""
    opening, closing = tags(name, attributes)
    longest = rule.longest

    def element(value: str | None, notes: list[Note]) -> str:
        if not value:
            return ""
        if len(value) <= longest and is_plain(value):
            return f"{opening}{value}{closing}"
        text = fit.text(rule, value, notes)
        return f"{opening}{text}{closing}" if text else ""

    return element


class Number(msgspec.Struct, frozen=True):
    """An element of a whole number; `source`, here and below, is an expression with the layout's arguments."""

    source: str
    rule: NumberRule
    name: str
    attributes: str = ""

    def maker(self) -> NumberElement:
        """The function that renders any value."""
        return number_element(self.rule, self.name, self.attributes)

    def usual(self, value: str) -> tuple[str, str]:
        """For a variable with that name: the condition of the common case, and its text with `{expressions}`."""
        opening, closing = tags(self.name, self.attributes)
        return f"{self.rule.least} <= {value} <= {self.rule.largest}", f"{opening}{{{value}}}{closing}"


class Duration(msgspec.Struct, frozen=True):
    """An element of a duration given in milliseconds; the rule applies to its whole seconds, rounded half up."""

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
    """Consecutive elements that are usually all present and within their rules; if they are, they are written at once,
    with the same result.

    Their sources must not add notes.
    """

    parts: tuple[Number | Duration | Instant, ...]


def together(*parts: Number | Duration | Instant) -> Together:
    """See `Together`."""
    return Together(parts)


class Call(msgspec.Struct, frozen=True):
    """An expression that gives XML."""

    source: str


class SharedFragment(msgspec.Struct, frozen=True):
    """A fragment that many runs share: an expression for a `FragmentCache`, and one for its key."""

    source: str
    key: str


Element = Number | Duration | Instant | Text
Part = str | Call | SharedFragment | Element | Together


class _Names:
    """Names of the variables and makers of a function, and their values."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.known = known
        self._count = 0

    def new(self, kind: str, meaning: object = None) -> str:
        """An unused name; `meaning`, if given, is its value."""
        self._count += 1
        name = f"{kind}{self._count}"
        if meaning is not None:
            self.known[name] = meaning
        return name


def compiled(arguments: Sequence[str], layout: Iterable[Part], names: dict[str, Any]) -> Callable[..., str]:
    """The function of these arguments that renders the layout; `notes` must be among the arguments.

    `names` are the values that the expressions of the layout use besides the arguments.
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


def _lines(part: Call | SharedFragment | Element | Together, xml: str, taken: _Names) -> Iterator[str]:
    """The lines that put the XML of a part into the variable `xml`."""
    match part:
        case Call():
            yield f"{xml} = {part.source}"
        case SharedFragment():
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
    """The expression for an element by itself."""
    condition, usual = part.usual(value)
    maker = taken.new("make", part.maker())
    absent = f"{value} is None"
    if isinstance(part, Number) and part.rule.least == 1:  # no positive number, and no element: zero is absent
        absent = f"not {value}"
    return f"'' if {absent} else f{usual!r} if {condition} else {maker}({value}, notes)"


class HostCache:
    """Caches Host elements by host: a run has few hosts, but there are many combinations."""

    def __init__(self, rule: NameRule, *, primary_last: bool = False) -> None:
        """`primary_last`: for a service that keeps only the last host."""
        self._rule = rule
        self._primary_last = primary_last
        self._names: set[str] = set()

    def of(self, job: Job, notes: list[Note]) -> str:
        """The hosts of a run; the first with a valid name is the primary one."""
        primary = others = ""
        for host in job.hosts:
            if host.name in self._names or self._proper(host.name, notes):
                if primary:
                    others += f"<Host>{host.name}</Host>"
                else:
                    primary = f'<Host urf:primary="true">{host.name}</Host>'
        return others + primary if self._primary_last else primary + others

    def _proper(self, name: str, notes: list[Note]) -> bool:
        if not fit.name(self._rule, name, notes):
            return False
        if len(self._names) >= CACHED_FRAGMENTS:
            self._names.clear()
        self._names.add(name)
        return True


DECLARATION: Final = '<?xml version="1.0" encoding="UTF-8"?>'
"""ASCII is also UTF-8, and SGAS decodes every message as UTF-8, whatever it declares."""

SEPARATOR: Final = b"\n"

_UNPREFIXED: Final = re.compile(r"<(/?)(?=[A-Z])")
"""A tag of the default namespace. Text never contains `<`, because it is escaped."""


class XmlMessage:
    """A `UsageRecords` element of a format.

    The records use the prefixes that its root declares. Elements are in the default namespace or, in the style
    `prefixed`, have the prefix `urf`, as attributes always do: it is the same for a parser of namespaces, and needed by
    readers that search for the prefix.
    """

    def __init__(self, namespaces: Mapping[str, str], style: NamespaceStyle) -> None:
        """`namespaces`: by prefix; the empty prefix is that of the elements, and `urf` is the same."""
        self._prefixed = style == "prefixed"
        named = {prefix: uri for prefix, uri in namespaces.items() if prefix or not self._prefixed}
        declared = "".join(f' xmlns{":" + prefix if prefix else ""}="{uri}"' for prefix, uri in named.items())
        root = "urf:UsageRecords" if self._prefixed else "UsageRecords"
        self._head = f"{DECLARATION}\n<{root}{declared}>".encode("ascii")
        self._tail = f"</{root}>\n".encode("ascii")

    def styled(self, body: str) -> bytes:
        """A record that was rendered in the default namespace, in the style of this message, and such that it can be
        signed.

        It has this spelling also if the message is not signed.
        """
        return referenced(_UNPREFIXED.sub(r"<\1urf:", body) if self._prefixed else body).encode("ascii")

    def of(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records; without records, only its frame."""
        return SEPARATOR.join((self._head, *bodies, self._tail))  # at once: a message is large, and copying it costs

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the frame, with the line end after the last record."""
        return len(self._head) + 2 * len(SEPARATOR) + len(self._tail)


GPUS = ("gpus", "devices")
ENERGY = ("energy", "J")
"""Description and units of the two for which a job has fields; an extra has its own name and no units."""

RESOURCES = (
    "consumable_resources(job, rules.RESOURCE, notes) "
    "if job.extras or job.gpus is not None or job.energy_j is not None else ''"
)
"""The call in a layout; most runs have no such resource."""


def consumable_resources(job: Job, rule: TextRule, notes: list[Note]) -> str:
    """ConsumableResource elements of a run: its GPUs, its energy, and its extras that are numbers, by name."""
    elements = []
    for (description, units), value in ((GPUS, job.gpus), (ENERGY, job.energy_j)):
        if value is not None and (amount := fit.real("ConsumableResource", value, notes)):
            elements.append(
                f'<ConsumableResource urf:units="{units}" urf:description="{description}">{amount}</ConsumableResource>'
            )
    for name, extra in sorted(job.extras.items()):
        if isinstance(extra, str):
            continue
        label = fit.text(rule, name, notes)
        amount = fit.real("ConsumableResource", extra, notes)
        if label and amount:
            elements.append(f'<ConsumableResource urf:description="{label}">{amount}</ConsumableResource>')
    return "".join(elements)
