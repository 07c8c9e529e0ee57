"""A UsageRecords message taken apart as SGAS takes it: which elements it looks at, and no others.

Order does not matter, unknown elements are ignored, of repeated ones the last counts (the facts on formats, 1.4). XML
is parsed without entities, DTD and network. The schema is not applied: SGAS does not apply it either.

Most messages are thousands of records of one shape. A record whose sequence of tags is that of one which the parser
has read before needs no parser: its texts stand at the same places (`record_shapes`). The unusual goes to the parser.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Final

from lxml import etree

from publisher.simulator.record_shapes import Leaf, NotUsageRecordsError, Shapes, Values, collected

UR: Final = "http://schema.ogf.org/urf/2003/09/urf"
_VO = "http://www.sgas.se/namespaces/2009/05/ur/vo"
_SGAS = "http://www.sgas.se/namespaces/2009/07/ur"
_ARC = "http://www.nordugrid.org/ws/schemas/ur-arc"
_DEISA = "http://rmis.deisa.org/acct"
_TRANSFER = "http://www.sgas.se/namespaces/2010/10/filetransfer"


_IDENTITY = f"{{{UR}}}RecordIdentity"
_LEAVES: Final = {
    **{
        f"{{{UR}}}{name}": name
        for name in (
            "GlobalJobId", "LocalJobId", "LocalUserId", "GlobalUserName", "JobName", "Charge", "Status", "Memory",
            "WallDuration", "CpuDuration", "NodeCount", "Processors", "EndTime", "StartTime", "MachineName",
            "SubmitHost", "Queue", "ProjectName", "Host",
        )
    },
    f"{{{_DEISA}}}SubmitTime": "SubmitTime",
    f"{{{_SGAS}}}UserTime": "UserTime",
    f"{{{_SGAS}}}KernelTime": "KernelTime",
    f"{{{_SGAS}}}ExitCode": "ExitCode",
    f"{{{_SGAS}}}MajorPageFaults": "MajorPageFaults",
    f"{{{_SGAS}}}RuntimeEnvironment": "RuntimeEnvironment",
    f"{{{_ARC}}}RuntimeEnvironment": "RuntimeEnvironment",
    f"{{{_VO}}}Name": "VoName",
    f"{{{_VO}}}Issuer": "VoIssuer",
    f"{{{_VO}}}Group": "VoGroup",
    f"{{{_VO}}}Role": "VoRole",
    f"{{{_TRANSFER}}}URL": "TransferUrl",
    f"{{{_TRANSFER}}}Size": "TransferSize",
    f"{{{_TRANSFER}}}StartTime": "TransferStart",
    f"{{{_TRANSFER}}}EndTime": "TransferEnd",
}  # fmt: skip
_BRANCHES: Final = {
    f"{{{UR}}}JobIdentity", f"{{{UR}}}UserIdentity", f"{{{_VO}}}Attribute", f"{{{_TRANSFER}}}FileTransfers",
}  # fmt: skip
_VO_ELEMENT = f"{{{_VO}}}VO"
_TRANSFERS = {f"{{{_TRANSFER}}}FileDownload", f"{{{_TRANSFER}}}FileUpload"}
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


def _leaves(element: etree._Element) -> Iterator[Leaf]:
    for child in element:
        tag = child.tag
        slot = _LEAVES.get(tag)
        if slot is not None:
            attributes = _attributes(child) if slot in _WITH_ATTRIBUTES else ()
            yield slot, child.text or "", attributes
        elif tag == _IDENTITY:
            for name, value in _attributes(child):
                if name in {"recordId", "createTime"}:
                    yield name, value, ()
        elif tag in _BRANCHES:
            yield from _leaves(child)
        elif tag == _VO_ELEMENT:
            yield "Vo", str(child.get(f"{{{_VO}}}type", "")), ()
            yield from _leaves(child)
        elif tag in _TRANSFERS:
            yield "Transfer", child.tag.rpartition("}")[2] if len(child) else "", ()
            yield from _leaves(child)


def _attributes(element: etree._Element) -> tuple[tuple[str, str], ...]:
    """Qualified attributes only: the others do not count (the facts on formats, 1)."""
    return tuple(
        (str(name).rpartition("}")[2], str(value))
        for name, value in element.attrib.items()
        if str(name).startswith(f"{{{UR}}}")
    )


SHAPES: Final = Shapes(parsed)
"""What was learnt of the shapes of records, by all simulators of this process."""
