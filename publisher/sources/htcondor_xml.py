"""Ads of `condor_history -xml`, one after the other, in memory that is bounded by the largest ad.

Input is hostile: no entities, no DTD, no network, no huge texts. The document type that HTCondor writes names a DTD,
which is not read; one that declares anything itself is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from lxml import etree

from publisher.sources.htcondor_ad import Value, is_wanted
from publisher.sources.lines import Refused

_BLOCK: Final = 1 << 16
_MOST_BYTES: Final = 16 * 2**20
"""Between the ends of two ads."""


def ads(read: Callable[[int], bytes]) -> Iterator[dict[str, Value] | Refused]:
    """The attributes of each ad, names in lower case; what cannot be read ends the document with a `Refused`."""
    parser = etree.XMLPullParser(
        events=("end",), tag="c", resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False,
        remove_comments=True, remove_pis=True,
    )  # fmt: skip
    since = 0
    first = True
    while block := read(_BLOCK):
        if first and b"<!ENTITY" in block:
            yield Refused("the document declares entities; HTCondor's do not")
            return
        first = False
        since += len(block)
        try:
            parser.feed(block)
            for _, found in parser.read_events():
                element: Any = found
                parent = element.getparent()
                if parent is not None and parent.tag != "classads":
                    continue  # an ad inside an ad
                since = 0
                yield _attributes(element)
                element.clear()
                while element.getprevious() is not None and parent is not None:
                    del parent[0]
        except etree.XMLSyntaxError as error:
            yield Refused(f"the XML is cut off or damaged: {error.msg}")
            return
        if since > _MOST_BYTES:
            yield Refused(f"an ad of more than {_MOST_BYTES} bytes")
            return
    try:
        parser.close()
    except etree.XMLSyntaxError as error:
        yield Refused(f"the XML is cut off or damaged: {error.msg}")


def _attributes(element: Any) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for attribute in element.iterchildren("a"):
        name = (attribute.get("n") or "").lower()
        value = next(attribute.iterchildren(), None)
        if value is not None and is_wanted(name):
            found[name] = _value(value)
    return found


def _value(element: Any) -> Value:
    text = element.text or ""
    if element.tag == "s":
        return str(text)
    if element.tag == "b":
        return bool((element.get("v") or text) in {"t", "true"})
    if element.tag == "c":
        return {str(part.get("n")): _value(part[0]) for part in element.iterchildren("a") if len(part)}
    if element.tag in {"i", "r"}:
        try:
            return int(text) if element.tag == "i" else float(text)
        except ValueError:
            return None
    return str(text) if element.tag == "e" else None
