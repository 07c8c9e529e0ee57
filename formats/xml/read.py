"""Read UR and CAR messages, ours and those of others (ARC, SGAS' BaRT, the APEL client).

Input is hostile: no entities, no DTD, no network, bounded size. A value that cannot be read is a problem of its record,
never of the message. Facts that a format cannot express are not read back: durations are whole seconds, the network is
one number (`extras["network_bytes"]`), and the VOMS attributes of a UR have no capability (see the formats' pages).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from lxml import etree

from formats.job import Benchmark, Host, Job, Transfer
from formats.text import read_date_time, read_duration_ms
from formats.xml import emi_car, ogf_ur

MAX_BYTES: Final = 64 * 2**20
"""A message larger than this is not read; services accept far less."""

UR: Final = ogf_ur.NAMESPACES[""]
CAR: Final = emi_car.NAMESPACES[""]
FORMAT_OF_NAMESPACE: Final = {UR: ogf_ur.FORMAT.name, CAR: emi_car.FORMAT.name}
"""The format by the namespace of the root."""

_NOT_TAKEN: Final = {
    "http://eu-emi.eu/namespaces/2012/11/aggregatedcomputerecord": "EMI's aggregated records, which APEL does not take",
    "http://eu-emi.eu/namespaces/2012/10/computerecord": "CAR 1.0 or 1.1; APEL takes 1.2",
    "http://schema.ogf.org/urf/2013/04/urf": "OGF Usage Record 2.0, which no service takes",
}
"""What a message of a related standard is, by the namespace of its root (facts on formats, 2, 2.2 and 3)."""

_RECORDS: Final = {UR: frozenset({"JobUsageRecord", "UsageRecord"}), CAR: frozenset({"UsageRecord"})}
_KIB: Final = {"B": 1 / 1024, "KB": 1, "MB": 1024, "GB": 1024**2, "TB": 1024**3, "PB": 1024**4, "EB": 1024**5}
_ARC: Final = ogf_ur.NAMESPACES["arc"]
_SGAS: Final = ogf_ur.NAMESPACES["sgas"]
_DEISA: Final = ogf_ur.NAMESPACES["deisa"]
_VO: Final = ogf_ur.NAMESPACES["vo"]
_TR: Final = ogf_ur.NAMESPACES["tr"]

T = TypeVar("T")


_BEFORE_XML: Final = b"\xef\xbb\xbf \t\r\n"
"""Bytes that may precede the first tag: a byte order mark, white space."""


def begins_as_xml(payload: bytes) -> bool:
    """Whether a message is XML rather than text, by its first character."""
    return payload.lstrip(_BEFORE_XML).startswith(b"<")


class NotAMessageError(ValueError):
    """The bytes are not a UR or CAR message: too large, not well-formed, with a DTD, or with another root."""


class ReadRecord(msgspec.Struct, frozen=True):
    """A record of a message. `job.system` is the format's name; `problems`: values that could not be read."""

    job: Job
    created: int | None
    site: str | None = None
    problems: tuple[str, ...] = ()


def parse(payload: bytes) -> etree._Element:
    """Root element of a message, parsed without entities, DTD and network. Raises `NotAMessageError`."""
    if len(payload) > MAX_BYTES:
        raise NotAMessageError(f"{len(payload)} bytes; at most {MAX_BYTES} are read")
    # Messages are of others: an entity or DTD could read files of this host, reach its network, or grow to gigabytes.
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(payload, parser)
    except etree.XMLSyntaxError as error:
        if payload.count(b"<?xml ") > 1:
            raise NotAMessageError("several consecutive messages; a file must hold one message") from error
        raise NotAMessageError(f"not well-formed: {error.msg}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise NotAMessageError("has a document type definition, which messages of these formats never have")
    name = etree.QName(root)
    if name.namespace not in FORMAT_OF_NAMESPACE or name.localname not in _RECORDS[name.namespace] | {"UsageRecords"}:
        known = _NOT_TAKEN.get(name.namespace or "", "not UR or CAR")
        raise NotAMessageError(f"its root is {root.tag[:100]!s}, {known}")
    return root


def record_elements(root: etree._Element) -> list[etree._Element]:
    """The records of a message: the root itself, or its children that are records."""
    name = etree.QName(root)
    namespace = name.namespace or ""
    if name.localname != "UsageRecords":
        return [root]
    return [child for child in root if etree.QName(child).localname in _RECORDS[namespace]]


def read(payload: bytes) -> list[ReadRecord]:
    """The records of a UR or CAR message as jobs. Raises `NotAMessageError`."""
    root = parse(payload)
    namespace = etree.QName(root).namespace or ""
    return [_RecordReader(element, namespace).record() for element in record_elements(root)]


class _RecordReader:
    """Reads the values of one record's element by path, and collects problems."""

    def __init__(self, element: etree._Element, namespace: str) -> None:
        self._element = element
        self._ns = namespace
        self._problems: list[str] = []

    def record(self) -> ReadRecord:
        fields: dict[str, Any] = {"system": FORMAT_OF_NAMESPACE[self._ns], "status": self._status()}
        identity = self._element.find(f"{{{self._ns}}}RecordIdentity")
        fields["record_id"] = (self._attribute(identity, "recordId") or "") if identity is not None else ""
        created = self._as(read_date_time, self._attribute(identity, "createTime")) if identity is not None else None
        fields |= self._common()
        fields |= self._of_ur() if self._ns == UR else self._of_car()
        job = Job(**{name: value for name, value in fields.items() if value is not None})
        return ReadRecord(job, created, self._text("Site"), tuple(self._problems))

    def _status(self) -> str:
        status = (self._text("Status") or "").strip().lower()
        if status in ogf_ur.STATUS:
            return status
        if status in {"started", "suspended", "held", "queued"}:
            return "running"
        self._problems.append(f"Status {status[:40]!r} is none of a finished job")
        return "failed"

    def _common(self) -> dict[str, Any]:
        local_group = self._text("UserIdentity/LocalGroup")
        local_user = self._text("UserIdentity/LocalUserId")
        return {
            "global_id": self._text("JobIdentity/GlobalJobId"),
            "local_id": self._text("JobIdentity/LocalJobId"),
            "process_ids": tuple(self._each("JobIdentity/ProcessId", int)),
            "local_user": local_user,
            "local_group": local_group,
            "user_dn": self._text("UserIdentity/GlobalUserName"),
            "name": self._text("JobName"),
            "charge": self._as(float, self._text("Charge")),
            "memory_rss_kib": self._volume("Memory", {"physical"}, 1),
            "memory_virtual_kib": self._volume("Memory", {"shared", "virtual"}, 1),
            "swap_kib": self._volume("Swap", None, 1),
            "wall_ms": self._as(read_duration_ms, self._text("WallDuration")),
            "cpu_user_ms": self._cpu({"user"}),
            "cpu_system_ms": self._cpu({"system"}),
            "cpu_ms": self._cpu({"all", None}),
            "nodes": self._as(int, self._text("NodeCount")),
            "cores": self._as(int, self._text("Processors")),
            "start": self._as(read_date_time, self._text("StartTime")),
            "end": self._as(read_date_time, self._text("EndTime")),
            "cluster": self._text("MachineName"),
            "queue": self._text("Queue"),
            "hosts": self._hosts(),
            "benchmarks": self._benchmarks(),
            **self._resources(),
        }

    def _of_ur(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "project": self._text("ProjectName"),
            "client_host": self._text("SubmitHost"),
            "scratch_bytes": self._volume("Disk", None, 1024),
            "stage_in_ms": self._as(read_duration_ms, self._typed("TimeDuration", "stageIn")),
            "stage_out_ms": self._as(read_duration_ms, self._typed("TimeDuration", "stageOut")),
            "submit": self._as(
                read_date_time, self._text(f"{{{_DEISA}}}SubmitTime") or self._typed("TimeInstant", "submit")
            ),
            "lrms_submit": self._as(read_date_time, self._typed("TimeInstant", "queued")),
            "eligible": self._as(read_date_time, self._typed("TimeInstant", "eligible")),
            "execution_start": self._as(read_date_time, self._typed("TimeInstant", "executionStart")),
            "execution_end": self._as(read_date_time, self._typed("TimeInstant", "executionEnd")),
            "service_class": self._typed("ServiceLevel", None),
            "exit_code": self._as(int, self._text(f"{{{_SGAS}}}ExitCode")),
            "runtime_environments": tuple(
                self._each(f"{{{_ARC}}}RuntimeEnvironment", str) + self._each(f"{{{_SGAS}}}RuntimeEnvironment", str)
            ),
            "transfers": tuple(self._transfers()),
            "vo": self._text(f"UserIdentity/{{{_VO}}}VO/{{{_VO}}}Name"),
            "vo_issuer": self._text(f"UserIdentity/{{{_VO}}}VO/{{{_VO}}}Issuer"),
            "fqans": tuple(dict.fromkeys(self._vo_attributes())),
        }
        local_user = self._text("UserIdentity/LocalUserId")
        if local_user and ":" in local_user:
            fields["local_user"], _, fields["local_group"] = local_user.partition(":")
        for name, field in (("UserTime", "cpu_user_ms"), ("KernelTime", "cpu_system_ms")):
            if (text := self._text(f"{{{_SGAS}}}{name}")) is not None:
                fields[field] = self._as(read_duration_ms, text)
        if self._cpu({None}) is None and (parts := [self._cpu({kind}) for kind in ("user", "system")]) != [None, None]:
            fields["cpu_ms"] = sum(part for part in parts if part is not None)
        return fields

    def _of_car(self) -> dict[str, Any]:
        infrastructure = self._element.find(f"{{{CAR}}}Infrastructure")
        middleware = self._element.find(f"{{{CAR}}}Middleware")
        kind = self._attribute(infrastructure, "type") if infrastructure is not None else None
        return {
            "vo": self._text("UserIdentity/Group"),
            "fqans": tuple(
                dict.fromkeys(
                    element.text
                    for element in self._all("UserIdentity/GroupAttribute")
                    if element.text and self._attribute(element, "type") == "FQAN"
                )
            ),
            "project": self._typed("UserIdentity/GroupAttribute", "ProjectName"),
            "exit_code": self._as(int, self._text("ExitStatus")),
            "infrastructure": kind if kind in {"grid", "local"} else None,
            "middleware": self._attribute(middleware, "name") if middleware is not None else None,
            "middleware_version": self._attribute(middleware, "version") if middleware is not None else None,
            "endpoint_url": self._text("SubmitHost"),
            "submit": self._as(read_date_time, self._typed("TimeInstant", "Ctime")),
            "lrms_submit": self._as(read_date_time, self._typed("TimeInstant", "Qtime")),
            "eligible": self._as(read_date_time, self._typed("TimeInstant", "Etime")),
        }

    # --- elements

    def _all(self, path: str) -> list[etree._Element]:
        steps = [step if step.startswith("{") else f"{{{self._ns}}}{step}" for step in _steps(path)]
        return self._element.findall("/".join(steps))

    def _text(self, path: str) -> str | None:
        texts = self._all(path)
        return (texts[0].text or None) if texts else None

    def _typed(self, path: str, kind: str | None) -> str | None:
        for element in self._all(path):
            if self._attribute(element, "type") == kind:
                return element.text or None
        return None

    def _attribute(self, element: etree._Element, name: str) -> str | None:
        value = element.get(f"{{{self._ns}}}{name}")
        return str(value) if value is not None else None

    def _as(self, convert: Callable[[str], T], text: str | None) -> T | None:
        if text is None:
            return None
        try:
            return convert(text)
        except (ValueError, OverflowError) as error:
            self._problems.append(str(error)[:200])
            return None

    def _each(self, path: str, convert: Callable[[str], T]) -> list[T]:
        values = (self._as(convert, element.text) for element in self._all(path))
        return [value for value in values if value is not None]

    def _hosts(self) -> tuple[Host, ...]:
        """The hosts, the primary one first."""
        elements = sorted(self._all("Host"), key=lambda host: self._attribute(host, "primary") not in {"true", "1"})
        return tuple(Host(host.text) for host in elements if host.text)

    def _cpu(self, kinds: set[str | None]) -> int | None:
        for element in self._all("CpuDuration"):
            if self._attribute(element, "usageType") in kinds:
                return self._as(read_duration_ms, element.text)
        return None

    def _volume(self, name: str, kinds: set[str] | None, per_kib: int) -> int | None:
        for element in self._all(name):
            kind = (self._attribute(element, "type") or "").lower()
            if kinds is None or kind in kinds:
                amount = self._as(int, element.text)
                factor = _KIB.get(self._attribute(element, "storageUnit") or "B", 1 / 1024)
                return None if amount is None else _scaled(amount, factor * per_kib)
        return None

    def _benchmarks(self) -> tuple[Benchmark, ...]:
        levels = []
        for element in self._all("ServiceLevel"):
            kind = self._attribute(element, "type")
            if kind and (value := self._as(float, element.text)) is not None:
                levels.append(Benchmark(kind, value))
        return tuple(levels)

    def _resources(self) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        extras: dict[str, float] = {}
        network = self._volume("Network", None, 1024) if self._ns == UR else None
        if network is not None:
            extras["network_bytes"] = network
        for element in self._all("ConsumableResource"):
            name = self._attribute(element, "description") or ""
            value = self._as(float, element.text)
            if value is None:
                continue
            units = self._attribute(element, "units")
            if (name, units) == ("gpus", "devices") and value.is_integer():
                fields["gpus"] = int(value)
            elif (name, units) == ("energy", "J"):
                fields["energy_j"] = value
            else:
                extras[name] = value
        return {**fields, "extras": extras}

    def _vo_attributes(self) -> list[str]:
        fqans = []
        for attribute in self._all(f"UserIdentity/{{{_VO}}}VO/{{{_VO}}}Attribute"):
            group = (attribute.findtext(f"{{{_VO}}}Group") or "").strip("/")
            role = (attribute.findtext(f"{{{_VO}}}Role") or "").removeprefix("/").removeprefix("Role=")
            if group:
                fqans.append(f"/{group}/Role={role}" if role else f"/{group}")
        return fqans

    def _transfers(self) -> list[Transfer]:
        transfers = []
        for element in self._all(f"{{{_TR}}}FileTransfers/*"):
            name = etree.QName(element).localname
            if name not in {"FileDownload", "FileUpload"}:
                continue
            value = {etree.QName(child).localname: child.text for child in element}
            transfers.append(
                Transfer(
                    "download" if name == "FileDownload" else "upload",
                    value.get("URL") or "",
                    self._as(int, value.get("Size")),
                    self._as(read_date_time, value.get("StartTime")),
                    self._as(read_date_time, value.get("EndTime")),
                    (value.get("RetrievedFromCache") or "").strip() in {"true", "1"},
                )
            )
        return transfers


def _steps(path: str) -> list[str]:
    """Split a path at slashes, except those in namespaces, which are in braces."""
    steps, depth, step = [], 0, ""
    for char in path:
        depth += (char == "{") - (char == "}")
        if char == "/" and not depth:
            steps.append(step)
            step = ""
        else:
            step += char
    return [*steps, step] if step != "*" else [*steps, "{*}*"]


def _scaled(amount: int, factor: float) -> int:
    return amount * int(factor) if factor >= 1 else int(amount * factor)
