"""Splits a UsageRecords message as SGAS does, into the values of each record (facts on formats, 1.4).

Only the elements that SGAS reads, in the places where it expects them, count. Order does not matter, unknown elements
are ignored, of repeated ones the last counts. XML is parsed without entities, DTD, and network. The schema is not
applied: SGAS does not apply it either. Most messages are thousands of records of one shape. A record with the same
sequence of tags as one that was parsed before needs no parser: its texts are at the same places (`record_shapes`). All
other records are parsed.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Final, NamedTuple

from lxml import etree

from publisher.simulator.record_shapes import Leaf, NotUsageRecordsError, Shapes, Values, collected

UR: Final = "http://schema.ogf.org/urf/2003/09/urf"
_VO = "http://www.sgas.se/namespaces/2009/05/ur/vo"
_SGAS = "http://www.sgas.se/namespaces/2009/07/ur"
_ARC = "http://www.nordugrid.org/ws/schemas/ur-arc"
_DEISA = "http://rmis.deisa.org/acct"
_TRANSFER = "http://www.sgas.se/namespaces/2010/10/filetransfer"


class _Branch(NamedTuple):
    """An element whose children SGAS reads: slots, or branches, by tag. `slot`: that of the element itself, with its
    type as text, or whether it has a known child.
    """

    children: dict[str, str | _Branch]
    slot: str = ""


def _named(namespace: str, *names: str, prefix: str = "") -> dict[str, str | _Branch]:
    return {f"{{{namespace}}}{name}": f"{prefix}{name}" for name in names}


_IDENTITY = f"{{{UR}}}RecordIdentity"
_FILE = _named(_TRANSFER, "URL", "Size", "StartTime", "EndTime", "BypassCache", "RetrievedFromCache", prefix="Transfer")
_VO_BRANCH = _Branch(
    {
        **_named(_VO, "Name", "Issuer", prefix="Vo"),
        f"{{{_VO}}}Attribute": _Branch(_named(_VO, "Group", "Role", prefix="Vo"), "VoAttribute"),
    },
    "Vo",
)
_RECORD: Final = _Branch(
    {
        **_named(
            UR, "JobName", "Charge", "Status", "Memory", "WallDuration", "CpuDuration", "NodeCount", "Processors",
            "EndTime", "StartTime", "MachineName", "SubmitHost", "Queue", "ProjectName", "Host",
        ),
        **_named(_DEISA, "SubmitTime"),
        **_named(_SGAS, "UserTime", "KernelTime", "ExitCode", "MajorPageFaults", "RuntimeEnvironment"),
        **_named(_ARC, "RuntimeEnvironment"),
        _IDENTITY: _Branch({}),
        f"{{{UR}}}JobIdentity": _Branch(_named(UR, "GlobalJobId", "LocalJobId")),
        f"{{{UR}}}UserIdentity": _Branch(
            {**_named(UR, "LocalUserId", "GlobalUserName"), f"{{{_VO}}}VO": _VO_BRANCH}
        ),
        f"{{{_TRANSFER}}}FileTransfers": _Branch(
            {f"{{{_TRANSFER}}}File{way}": _Branch(_FILE, f"Transfer{way}") for way in ("Download", "Upload")}
        ),
    }
)  # fmt: skip
_WITH_ATTRIBUTES = frozenset({"Memory"})


def read(body: bytes) -> Iterator[Values]:
    """The values of each record, in order. Raises `NotUsageRecordsError`."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotUsageRecordsError("not UTF-8") from error
    shaped = SHAPES.read(text.encode() if body[:3] == codecs.BOM_UTF8 else body, text)
    return map(collected, parsed(text)) if shaped is None else iter(shaped)


def parsed(text: str) -> Iterator[list[Leaf]]:
    """The values of each record, by the parser."""
    root = _root(text)
    if root.tag == f"{{{UR}}}JobUsageRecord":
        return iter([list(_leaves(root))])
    if root.tag != f"{{{UR}}}UsageRecords":
        raise NotUsageRecordsError(f"the root is {root.tag}")
    return _records(root)


def _records(root: etree._Element) -> Iterator[list[Leaf]]:
    for element in root:
        if isinstance(element.tag, str):
            if element.tag != f"{{{UR}}}JobUsageRecord":
                raise NotUsageRecordsError(f"{element.tag} among the records")
            yield list(_leaves(element))


def _root(text: str) -> etree._Element:
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, remove_comments=True, remove_pis=True,
        encoding="utf-8",
    )  # fmt: skip
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise NotUsageRecordsError(f"not well formed: {error.msg}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise NotUsageRecordsError("has a document type definition")
    return root


def _leaves(element: etree._Element, branch: _Branch = _RECORD) -> Iterator[Leaf]:
    for child in element:
        known = branch.children.get(child.tag)
        if isinstance(known, str):
            yield known, child.text or "", _attributes(child) if known in _WITH_ATTRIBUTES else ()
        elif known is not None and child.tag == _IDENTITY:
            values = dict(_attributes(child))
            if "createTime" not in values:
                raise NotUsageRecordsError("no createTime")
            yield from ((name, values[name], ()) for name in ("recordId", "createTime") if name in values)
        elif known is not None:
            if known.slot == "Vo":
                yield known.slot, str(child.get(f"{{{_VO}}}type", "")), ()
            elif known.slot:
                yield known.slot, "known" if any(each.tag in known.children for each in child) else "", ()
            yield from _leaves(child, known)


def _attributes(element: etree._Element) -> tuple[tuple[str, str], ...]:
    """Qualified attributes only: the others do not count (the facts on formats, 1)."""
    return tuple(
        (str(name).rpartition("}")[2], str(value))
        for name, value in element.attrib.items()
        if str(name).startswith(f"{{{UR}}}")
    )


SHAPES: Final = Shapes(parsed)
"""The shapes of records that all simulators of this process have met."""
