"""A plain publisher of the same records, to compare with: it takes the same steps as ARC's publisher, without its
errors and without optimisation.

Jobs are read one by one, each with a query to every side table; a record is a tree of lxml elements, serialised by
itself; each message is signed by the library's S/MIME writer and sent over a new connection with a new TLS context. It
has no store.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import ssl
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.serialization import pkcs7
from lxml import etree

from formats.job import Job

UR = "http://schema.ogf.org/urf/2003/09/urf"
VO = "http://www.sgas.se/namespaces/2009/05/ur/vo"
CAR = "http://eu-emi.eu/namespaces/2012/11/computerecord"
SIDES = ("AuthTokenAttributes", "JobEvents", "RunTimeEnvironments", "DataTransfers", "JobExtraInfo")

Fields = dict[str, str]


def read_jobs(database: Path) -> Iterator[Fields]:
    """The completed and failed jobs of an ARC database, a query to each side table for each job."""
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    query = (
        "SELECT AAR.*, Users.Name AS User, Queues.Name AS Queue, WLCGVOs.Name AS VO, Status.Name AS Status, "
        "Endpoints.URL AS URL FROM AAR JOIN Users ON Users.ID = UserID JOIN Queues ON Queues.ID = QueueID "
        "JOIN WLCGVOs ON WLCGVOs.ID = VOID JOIN Status ON Status.ID = StatusID JOIN Endpoints ON Endpoints.ID = "
        "EndpointID WHERE Status.Name IN ('completed', 'failed') ORDER BY EndTime"
    )
    for row in connection.execute(query):
        sides = {
            table: connection.execute(f"SELECT * FROM {table} WHERE RecordID = ?", (row["RecordID"],)).fetchall()
            for table in SIDES
        }
        extra = {item["InfoKey"]: item["InfoValue"] or "" for item in sides["JobExtraInfo"]}
        yield {name: "" if row[name] is None else str(row[name]) for name in row.keys()} | extra  # noqa: SIM118
    connection.close()


def fields_of(job: Job) -> Fields:
    """The fields of a job that was read already, as `read_jobs` names them."""
    return {
        "URL": job.endpoint_url or "", "JobID": job.global_id or "", "LocalJobID": job.local_id or "",
        "localuser": job.local_user or "", "User": job.user_dn or "", "VO": job.vo or "", "jobname": job.name or "",
        "Status": job.status, "UsedMemory": str(job.memory_rss_kib), "UsedVirtMem": str(job.memory_virtual_kib),
        "UsedWalltime": str((job.wall_ms or 0) // 1000), "UsedCPUUserTime": str((job.cpu_user_ms or 0) // 1000),
        "UsedCPUKernelTime": str((job.cpu_system_ms or 0) // 1000), "NodeCount": str(job.nodes),
        "CPUCount": str(job.cores), "SubmitTime": str(job.submit), "EndTime": str(job.end), "Queue": job.queue or "",
        "clienthost": job.client_host or "", "ExitCode": str(job.exit_code),
        "benchmark": ":".join((job.benchmarks[0].type, str(job.benchmarks[0].value))) if job.benchmarks else "",
        "nodename": job.hosts[0].name if job.hosts else "",
    }  # fmt: skip


def _iso(epoch_s: str) -> str:
    return datetime.fromtimestamp(int(epoch_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _add(parent: etree._Element, name: str, text: str, **attributes: str) -> etree._Element:
    space = etree.QName(parent).namespace
    element = etree.SubElement(parent, f"{{{space}}}{name}")
    for key, value in attributes.items():
        element.set(f"{{{space}}}{key}", value)
    element.text = text or None
    return element


def usage_record(job: Fields) -> etree._Element:
    """A usage record as a tree."""
    record = etree.Element(f"{{{UR}}}JobUsageRecord")
    host = urlsplit(job["URL"]).hostname or ""
    _add(record, "RecordIdentity", "", createTime=_iso(job["EndTime"]), recordId=f"ur-{host}-{job['JobID']}")
    identity = _add(record, "JobIdentity", "")
    _add(identity, "GlobalJobId", job["JobID"])
    _add(identity, "LocalJobId", job["LocalJobID"])
    user = _add(record, "UserIdentity", "")
    _add(user, "LocalUserId", job.get("localuser", ""))
    _add(user, "GlobalUserName", job["User"])
    group = etree.SubElement(user, f"{{{VO}}}VO")
    _add(group, "Name", job["VO"])
    _add(record, "JobName", job.get("jobname", ""))
    _add(record, "Status", job["Status"])
    _add(record, "Memory", job["UsedMemory"], storageUnit="KB", metric="max", type="physical")
    _add(record, "Memory", job["UsedVirtMem"], storageUnit="KB", metric="max", type="shared")
    _add(record, "TimeInstant", _iso(job["SubmitTime"]), type="submit")
    _add(record, "ServiceLevel", job.get("benchmark", "").partition(":")[2], type="HEPscore23")
    _durations(record, job)
    _add(record, "NodeCount", job["NodeCount"])
    _add(record, "Processors", job["CPUCount"])
    _add(record, "EndTime", _iso(job["EndTime"]))
    _add(record, "StartTime", _iso(job["SubmitTime"]))
    _add(record, "MachineName", host)
    _add(record, "Queue", job["Queue"])
    _add(record, "SubmitHost", job.get("clienthost", ""))
    _add(record, "Host", job.get("nodenames", job.get("nodename", "")).split(":")[0], primary="true")
    return record


def compute_record(job: Fields) -> etree._Element:
    """A compute accounting record as a tree."""
    record = etree.Element(f"{{{CAR}}}UsageRecord")
    host = urlsplit(job["URL"]).hostname or ""
    _add(record, "RecordIdentity", "", createTime=_iso(job["EndTime"]), recordId=f"ur-{host}-{job['JobID']}")
    identity = _add(record, "JobIdentity", "")
    _add(identity, "GlobalJobId", job["JobID"])
    _add(identity, "LocalJobId", job["LocalJobID"])
    user = _add(record, "UserIdentity", "")
    _add(user, "GlobalUserName", job["User"], type="opensslCompat")
    _add(user, "Group", job["VO"])
    _add(user, "LocalUserId", job.get("localuser", ""))
    _add(record, "JobName", job.get("jobname", ""))
    _add(record, "Status", job["Status"])
    _add(record, "ExitStatus", job["ExitCode"])
    _add(record, "Infrastructure", "", type="grid", description="PLAIN-ARC-SLURM")
    _durations(record, job)
    _add(record, "ServiceLevel", job.get("benchmark", "").partition(":")[2], type="HEPscore23")
    _add(record, "Memory", job["UsedMemory"], storageUnit="KB", metric="max", type="Physical")
    _add(record, "Memory", job["UsedVirtMem"], storageUnit="KB", metric="max", type="Shared")
    _add(record, "TimeInstant", _iso(job["SubmitTime"]), type="Ctime")
    _add(record, "NodeCount", job["NodeCount"])
    _add(record, "Processors", job["CPUCount"])
    _add(record, "EndTime", _iso(job["EndTime"]))
    _add(record, "StartTime", _iso(job["SubmitTime"]))
    _add(record, "MachineName", host)
    _add(record, "SubmitHost", job["URL"])
    _add(record, "Queue", job["Queue"], description="execution")
    _add(record, "Site", "EXAMPLE-SITE", type="gocdb")
    _add(record, "Host", job.get("nodenames", job.get("nodename", "")).split(":")[0], primary="true")
    return record


def _durations(record: etree._Element, job: Fields) -> None:
    user, kernel = job["UsedCPUUserTime"], job["UsedCPUKernelTime"]
    _add(record, "WallDuration", f"PT{job['UsedWalltime']}S")
    _add(record, "CpuDuration", f"PT{user}S", usageType="user")
    _add(record, "CpuDuration", f"PT{kernel}S", usageType="system")


def message(records: Sequence[etree._Element], space: str) -> bytes:
    """Records in one document."""
    names: dict[str | None, str] = {None: space, "urf": space}
    root = etree.Element(f"{{{space}}}UsageRecords", nsmap=names)  # type: ignore[arg-type]
    root.extend(records)
    return etree.tostring(root, xml_declaration=True, encoding="utf-8")


class PlainConnection:
    """How the plain publisher reaches the simulator; a new TLS context and connection for every request."""

    def __init__(self, url: str, ca_file: str, certificate: str, key: str) -> None:
        self._address = urlsplit(url)
        self._files = (ca_file, certificate, key)

    def request(self, method: str, path: str, body: bytes | None = None, headers: Fields | None = None) -> bytes:
        """The body of the answer. Raises `RuntimeError` for any answer but 200."""
        ca_file, certificate, key = self._files
        context = ssl.create_default_context(cafile=ca_file)
        context.load_cert_chain(certificate, key)
        connection = http.client.HTTPSConnection(str(self._address.hostname), self._address.port, context=context)
        try:
            connection.request(method, self._address.path + path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {content[:200]!r}")
        return content


class PlainSigner:
    """The S/MIME writer of the library."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
        self._key = serialization.load_pem_private_key(key.read_bytes(), None)

    def sign(self, payload: bytes) -> bytes:
        """A detached signature around a payload."""
        builder = pkcs7.PKCS7SignatureBuilder().set_data(payload)
        signed = builder.add_signer(self._certificate, self._key, hashes.SHA256())  # type: ignore[arg-type]
        return signed.sign(
            serialization.Encoding.SMIME, [pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text]
        )


def batches(database: Path, size: int) -> Iterator[list[Fields]]:
    """The jobs of a database in batches."""
    batch: list[Fields] = []
    for job in read_jobs(database):
        batch.append(job)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def publish_to_sgas(database: Path, connection: PlainConnection, batch_records: int) -> int:
    """Usage records to SGAS; how many."""
    sent = 0
    for batch in batches(database, batch_records):
        connection.request("POST", "/ur", message([usage_record(job) for job in batch], UR))
        sent += len(batch)
    return sent


def publish_to_ams(
    database: Path, connection: PlainConnection, token: str, signer: PlainSigner, batch_records: int
) -> int:
    """Signed compute records to AMS; how many."""
    sent = 0
    for batch in batches(database, batch_records):
        signed = signer.sign(message([compute_record(job) for job in batch], CAR))
        body = json.dumps({"messages": [{"attributes": {"empaid": str(sent)}, "data": b64encode(signed).decode()}]})
        path = "/v1/projects/accounting/topics/gLite-APEL:publish"
        connection.request("POST", path, body.encode(), {"x-api-key": token, "Content-Type": "application/json"})
        sent += len(batch)
    return sent
