"""Splits a UsageRecords message as SGAS does, into the values of each record (facts on formats, 1.4).

Only the elements that SGAS reads, in the places where it expects them, count. Order does not matter, unknown elements
are ignored, of repeated ones the last counts. XML is parsed without entities, DTD, and network. The schema is not
applied: SGAS does not apply it either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from lxml import etree

UR: Final = "http://schema.ogf.org/urf/2003/09/urf"
_VO = "http://www.sgas.se/namespaces/2009/05/ur/vo"
_SGAS = "http://www.sgas.se/namespaces/2009/07/ur"
_ARC = "http://www.nordugrid.org/ws/schemas/ur-arc"
_DEISA = "http://rmis.deisa.org/acct"
_TRANSFER = "http://www.sgas.se/namespaces/2010/10/filetransfer"


class NotUsageRecordsError(ValueError):
    """Not well formed, not UTF-8, or not a message of usage records. SGAS answers only `Processing Failed`."""


Leaf: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]
"""One value of a record: its slot, its text (empty for an empty element), its attributes without prefix."""

Values: TypeAlias = tuple[dict[str, str], tuple[Leaf, ...]]
"""A record: the values of which the last counts, by slot, and in order those of which each counts (`MANY`, `EMPTY`)."""

MANY: Final = frozenset(
    {"CpuDuration", "Memory", "RuntimeEnvironment", "Vo", "VoAttribute", "VoGroup", "VoRole", "TransferDownload",
     "TransferUpload", "TransferURL", "TransferSize", "TransferStartTime", "TransferEndTime", "TransferBypassCache",
     "TransferRetrievedFromCache"}
)  # fmt: skip

EMPTY: Final = "Empty"
"""The slot of a leaf whose text is the slot of an empty element, after which another may follow."""


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
        root = _root(body.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise NotUsageRecordsError("not UTF-8") from error
    if root.tag == f"{{{UR}}}JobUsageRecord":
        return iter([collected(_leaves(root))])
    if root.tag != f"{{{UR}}}UsageRecords":
        raise NotUsageRecordsError(f"the root is {root.tag}")
    return map(collected, _records(root))


def collected(leaves: Iterable[Leaf]) -> Values:
    """A record from its values in their order."""
    singles: dict[str, str] = {}
    many: list[Leaf] = []
    for leaf in leaves:
        if leaf[0] in MANY:
            many.append(leaf)
        else:
            singles[leaf[0]] = leaf[1]
            if not leaf[1]:
                many.append((EMPTY, leaf[0], ()))
    return singles, tuple(many)


def _records(root: etree._Element) -> Iterator[Iterator[Leaf]]:
    for element in root:
        if isinstance(element.tag, str):
            if element.tag != f"{{{UR}}}JobUsageRecord":
                raise NotUsageRecordsError(f"{element.tag} among the records")
            yield _leaves(element)


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
