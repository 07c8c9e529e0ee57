"""OGF Usage Record 1.0 (GFD.98) with the SGAS and ARC extensions.

Records are valid against the official schema, without elements of foreign namespaces, and by the rules of the SGAS
server (facts on formats, 1; facts on receivers, 1), which are in `formats.rules.SgasRules`. `LAYOUT` is the layout of a
record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from formats import fit
from formats.apel.totals import dimensions_of_run
from formats.base import Format, FragmentCache, Note, Rendered
from formats.benchmark import noted_benchmark, score_text
from formats.columns import Value
from formats.hosts import machine_name
from formats.job import Job, Transfer
from formats.names import distinct_fqans, dn_for, sgas_group, vo_of
from formats.origin import CPU_ALL, PROJECT, VO_NAME, Origins, origin
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import SgasRules as Rules
from formats.text import is_plain
from formats.view import View
from formats.xml.layout import (
    RESOURCES,
    SEPARATOR,
    Call,
    Duration,
    HostCache,
    Instant,
    Number,
    SharedFragment,
    Text,
    XmlMessage,
    compiled,
    consumable_resources,
    number_element,
    text_element,
    together,
)
from formats.xml.origins import SHARED, origins_of

NAMESPACES: Final = {
    "": "http://schema.ogf.org/urf/2003/09/urf",
    "urf": "http://schema.ogf.org/urf/2003/09/urf",
    "vo": "http://www.sgas.se/namespaces/2009/05/ur/vo",
    "sgas": "http://www.sgas.se/namespaces/2009/07/ur",
    "deisa": "http://rmis.deisa.org/acct",
    "arc": "http://www.nordugrid.org/ws/schemas/ur-arc",
    "tr": "http://www.sgas.se/namespaces/2010/10/filetransfer",
}
"""Namespaces by prefix, as the root of a message declares them. Attributes are qualified too, so the default namespace
also has a prefix."""

STATUS: Final = {"completed": "completed", "failed": "failed", "aborted": "aborted", "cancelled": "aborted"}
"""GFD.98's states of a finished run; it has none for a cancelled run."""


_process_id = number_element(Rules.PROCESS_ID, "ProcessId")
_queue = text_element(Rules.QUEUE, "Queue")
_project = text_element(Rules.PROJECT, "ProjectName")
_runtime_environment = text_element(Rules.RUNTIME_ENVIRONMENT, "arc:RuntimeEnvironment")

_KB_MAX: Final = 'urf:storageUnit="KB" urf:metric="max"'
_NETWORK_BYTES: Final = (
    "job.stage_out_bytes if job.stage_in_bytes is None else job.stage_in_bytes + (job.stage_out_bytes or 0)"
)
"""The sum of what was staged in and out: UR, like ARC, has one amount for the network."""
_USER: Final = "job.user_dn, job.local_user, job.fqans, job.vo, job.vo_issuer, job.local_group, job.system"
_PLACE: Final = "job.endpoint_url, job.cluster, job.queue, job.project, job.account"

LAYOUT: Final = (
    '<JobUsageRecord><RecordIdentity urf:createTime="',
    Call("create_time"),
    '" urf:recordId="',
    Call("record_id"),
    '"/><JobIdentity><GlobalJobId>',
    Call("global_id"),
    "</GlobalJobId>",
    Text("self._local_id(job.local_id, notes) if job.local_id else None", Rules.LOCAL_JOB_ID, "LocalJobId"),
    Call("process_ids(job, notes) if job.process_ids else ''"),
    "</JobIdentity>",
    SharedFragment("self._users", _USER),
    Text("job.name or None", Rules.JOB_NAME, "JobName"),
    Call("charge(job.charge, rules.CHARGE, notes) if job.charge is not None else ''"),
    "<Status>",
    Call("status"),
    "</Status>",
    # properties that may be there once for each metric or type
    Number("job.scratch_bytes", Rules.AMOUNT, "Disk", 'urf:storageUnit="B" urf:type="scratch"'),
    together(
        Number("job.memory_rss_kib", Rules.MEMORY_KIB, "Memory", f'{_KB_MAX} urf:type="physical"'),
        Number("job.memory_virtual_kib", Rules.MEMORY_KIB, "Memory", f'{_KB_MAX} urf:type="shared"'),
    ),
    Number("job.swap_kib", Rules.AMOUNT, "Swap", _KB_MAX),
    Number(_NETWORK_BYTES, Rules.AMOUNT, "Network", 'urf:storageUnit="B" urf:metric="total"'),
    Duration("job.stage_in_ms", Rules.STAGING_S, "TimeDuration", 'urf:type="stageIn"'),
    Duration("job.stage_out_ms", Rules.STAGING_S, "TimeDuration", 'urf:type="stageOut"'),
    together(
        Instant("job.submit", "TimeInstant", 'urf:type="submit"'),
        Instant("job.lrms_submit", "TimeInstant", 'urf:type="queued"'),
    ),
    Instant("job.eligible", "TimeInstant", 'urf:type="eligible"'),
    together(
        Instant("job.execution_start", "TimeInstant", 'urf:type="executionStart"'),
        Instant("job.execution_end", "TimeInstant", 'urf:type="executionEnd"'),
    ),
    SharedFragment("self._levels", "(job.benchmarks, job.service_class)"),
    # properties that are there once
    together(
        Duration("job.wall_ms", Rules.WALL_S, "WallDuration"),
        Duration("job.cpu_user_ms if in_parts else None", Rules.CPU_S, "CpuDuration", 'urf:usageType="user"'),
        Duration("job.cpu_system_ms if in_parts else None", Rules.CPU_S, "CpuDuration", 'urf:usageType="system"'),
    ),
    Duration("None if in_parts else job.cpu_ms", Rules.CPU_S, "CpuDuration"),
    together(
        Number("job.nodes", Rules.NODE_COUNT, "NodeCount"),
        Number("job.cores or job.slots", Rules.PROCESSORS, "Processors"),
        Instant("job.end", "EndTime"),
        Instant("job.start", "StartTime"),
    ),
    SharedFragment("self._places", _PLACE),
    SharedFragment("self._clients", "job.client_host"),
    Call("self._hosts.of(job, notes) if job.hosts else ''"),
    Call(RESOURCES),
    # extensions
    together(
        Instant("job.submit if self._with_submit_time else None", "deisa:SubmitTime"),
        Duration("job.cpu_user_ms if self._with_user_time else None", Rules.CPU_PART_S, "sgas:UserTime"),
        Duration("job.cpu_system_ms if self._with_user_time else None", Rules.CPU_PART_S, "sgas:KernelTime"),
        Number("job.exit_code if self._with_exit_code else None", Rules.EXIT_CODE, "sgas:ExitCode"),
    ),
    SharedFragment("self._runtimes", "job.runtime_environments"),
    Call("transfers(job.transfers, notes) if self._with_transfers and job.transfers else ''"),
    "</JobUsageRecord>",
)
"""A record, from top to bottom."""

_TRANSFER_FACTS: Final = (
    "<tr:URL>",
    Call("url"),
    "</tr:URL>",
    together(
        Number("transfer.size_bytes", Rules.TRANSFER_SIZE, "tr:Size"),
        Instant("transfer.start", "tr:StartTime"),
        Instant("transfer.end", "tr:EndTime"),
    ),
)
UPLOAD_LAYOUT: Final = ("<tr:FileUpload>", *_TRANSFER_FACTS, "</tr:FileUpload>")
DOWNLOAD_LAYOUT: Final = (
    "<tr:FileDownload>",
    *_TRANSFER_FACTS,
    "<tr:RetrievedFromCache>",
    Call("'true' if transfer.from_cache else 'false'"),
    "</tr:RetrievedFromCache></tr:FileDownload>",
)
"""A file's transfer, by direction."""


class UsageRecordFormat:
    """Renders runs as OGF-UR for one view. It has no state except caches."""

    name = "ogf-ur"
    content_type = "application/xml"
    separator_bytes = len(SEPARATOR)

    def __init__(self, view: View) -> None:
        self._view = view
        self._message = XmlMessage(NAMESPACES, view.namespace_style)
        self._users = FragmentCache(self._user)
        self._levels = FragmentCache(self._service_levels)
        self._places = FragmentCache(self._place)
        self._clients = FragmentCache(_submit_host)
        self._hosts = HostCache(Rules.HOST, primary_last=True)
        self._runtimes = FragmentCache(self._runtime_environments)
        extensions = view.ur_extensions
        self._with_vo = "vo" in extensions
        self._with_submit_time = "submit-time" in extensions
        self._with_user_time = "user-time" in extensions
        self._with_exit_code = "exit-code" in extensions
        self._with_runtimes = "runtime-environment" in extensions
        self._with_transfers = "file-transfers" in extensions

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records."""
        return self._message.of(bodies)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a message around its records."""
        return self._message.overhead_bytes

    def record(self, job: Job, created: int) -> Rendered:
        """Render one run; `created` is its createTime, epoch seconds.

        Raises `CannotRenderError` if the record id, the machine name, the state, or an amount that is charged is
        missing or unusable.
        """
        notes: list[Note] = []
        status = STATUS.get(job.status)
        if status is None:
            raise CannotRenderError(RuleCode.NOT_PUBLISHED, "Status", status=job.status)
        create_time = fit.create_time(created)
        record_id, escaped_id = fit.token(Rules.RECORD_ID, self._view.record_id_prefix + job.record_id, notes)
        global_id = fit.text(Rules.GLOBAL_JOB_ID, job.global_id, notes) or escaped_id
        in_parts = _cpu_is_user_and_system(job)
        body = _render(self, job, create_time, escaped_id, global_id, status, in_parts, notes)
        return Rendered(self._message.styled(body), tuple(notes) if notes else (), record_id)

    def _local_id(self, local_id: str, notes: list[Note]) -> str | None:
        """LocalJobId. SGAS rewrites the *record* id of a run whose LocalJobId it cannot use."""
        given = self._view.local_id_prefix + local_id
        if not given.startswith("/"):
            return given
        notes.append(
            Note("LocalJobId", "SGAS rewrites the record id of one that begins with a slash", fit.shown(given), None)
        )
        return None

    def _user(self, job: Job, notes: list[Note]) -> str:
        local_user = job.local_user
        if local_user and job.local_group and job.is_of_grid:
            local_user = f"{local_user}:{job.local_group}"  # as ARC writes it, and SGAS services have it
        local = fit.text(Rules.LOCAL_USER_ID, local_user, notes)
        name = fit.text(Rules.GLOBAL_USER_NAME, dn_for(job, self._view), notes)
        content = (
            (f"<LocalUserId>{local}</LocalUserId>" if local else "")
            + (f"<GlobalUserName>{name}</GlobalUserName>" if name else "")
            + (self._vo(job, notes) if self._with_vo else "")
        )
        return f"<UserIdentity>{content}</UserIdentity>" if content else ""

    def _vo(self, job: Job, notes: list[Note]) -> str:
        vo = fit.text(Rules.VO_NAME, vo_of(job), notes)
        if not vo:
            return ""  # SGAS stores nothing about a VO without a name
        kind = fit.text(Rules.VO_TYPE, self._view.vo_type, notes)
        issuer = fit.text(Rules.VO_ISSUER, job.vo_issuer, notes)
        attributes = []
        for fqan in distinct_fqans(job.fqans):
            as_arc = self._view.vo_groups_for_sgas == "arc"
            group = fit.text(Rules.VO_GROUP, fqan.group if as_arc else sgas_group(fqan), notes)
            role = fit.text(Rules.VO_ROLE, f"/Role={fqan.role}" if as_arc and fqan.role else fqan.role, notes)
            if group:
                role = f"<vo:Role>{role}</vo:Role>" if role else ""
                attributes.append(f"<vo:Attribute><vo:Group>{group}</vo:Group>{role}</vo:Attribute>")
        return (
            (f'<vo:VO vo:type="{kind}">' if kind else "<vo:VO>")
            + f"<vo:Name>{vo}</vo:Name>"
            + (f"<vo:Issuer>{issuer}</vo:Issuer>" if issuer else "")
            + "".join(attributes)
            + "</vo:VO>"
        )

    def _service_levels(self, job: Job, notes: list[Note]) -> str:
        levels = ""
        benchmark = noted_benchmark(job, self._view, notes)
        if benchmark is not None:
            levels = f'<ServiceLevel urf:type="{benchmark.type}">{score_text(benchmark.value)}</ServiceLevel>'
        if self._view.service_class_as_service_level and job.service_class:
            tag = fit.text(Rules.SERVICE_CLASS, job.service_class, notes)
            levels += f"<ServiceLevel>{tag}</ServiceLevel>" if tag else ""
        return levels

    def _runtime_environments(self, job: Job, notes: list[Note]) -> str:
        if not self._with_runtimes:
            return ""
        return "".join(_runtime_environment(name, notes) for name in job.runtime_environments)

    def _place(self, job: Job, notes: list[Note]) -> str:
        machine = fit.name(Rules.MACHINE_NAME, machine_name(job, self._view), notes)
        project = _project(job.project or job.account, notes)
        return f"<MachineName>{machine}</MachineName>{_queue(job.queue, notes)}{project}"


def _process_ids(job: Job, notes: list[Note]) -> str:
    return "".join(_process_id(process_id, notes) for process_id in job.process_ids)


def _cpu_is_user_and_system(job: Job) -> bool:
    """Whether user and system time are the total CPU time, as far as it is known. SGAS adds up all values that it
    gets."""
    if job.cpu_ms is None:
        return True
    if job.cpu_user_ms is None or job.cpu_system_ms is None:
        return False
    return job.cpu_ms == job.cpu_user_ms + job.cpu_system_ms


def _submit_host(job: Job, notes: list[Note]) -> str:
    host = fit.name(Rules.SUBMIT_HOST, job.client_host, notes)
    return f"<SubmitHost>{host}</SubmitHost>" if host else ""


def _transfers(transfers: tuple[Transfer, ...], notes: list[Note]) -> str:
    elements = ""
    for transfer in transfers:
        # a transfer without an URL makes SGAS refuse the whole batch
        url = transfer.url
        if not is_plain(url) or len(url) > Rules.TRANSFER_URL.longest:
            url = fit.text(Rules.TRANSFER_URL, url, notes)
        if url:
            render = _upload if transfer.direction == "upload" else _download
            elements += render(transfer, url, notes)
    return f"<tr:FileTransfers>{elements}</tr:FileTransfers>" if elements else ""


_upload = compiled(("transfer", "url", "notes"), UPLOAD_LAYOUT, {})
_download = compiled(("transfer", "url", "notes"), DOWNLOAD_LAYOUT, {})
_render = compiled(
    ("self", "job", "create_time", "record_id", "global_id", "status", "in_parts", "notes"),
    LAYOUT,
    {
        "charge": fit.charge,
        "rules": Rules,
        "consumable_resources": consumable_resources,
        "transfers": _transfers,
        "process_ids": _process_ids,
    },
)


def summed_columns(job: Job, view: View) -> dict[str, Value]:
    """Machine, user, and VO of a record, by the facts of its run alone. Raises `CannotRenderError`."""
    machine = fit.name(Rules.MACHINE_NAME, machine_name(job, view), [])
    vo = vo_of(job) if "vo" in view.ur_extensions else None
    return {"machine": machine, "user": dn_for(job, view) or "", "vo": vo or ""}


ORIGINS: Final[Origins] = {
    **SHARED,
    **origins_of(LAYOUT),
    "JobIdentity/LocalJobId": origin(
        "local_id",
        how="omitted if longer than 120 characters or beginning with a slash",
        settings=("local_id_prefix",),
    ),
    "UserIdentity/LocalUserId": origin("local_user", "local_group", how="for ARC user:group, else the user"),
    "UserIdentity/VO[voms]/Name": VO_NAME,
    "UserIdentity/VO[voms]/Issuer": origin("vo_issuer"),
    "UserIdentity/VO[voms]/Attribute/Group": origin("fqans", how="each group and role once, without the first slash"),
    "UserIdentity/VO[voms]/Attribute/Role": origin("fqans", how="without `Role=`"),
    "Network": origin("stage_in_bytes", "stage_out_bytes", how="the sum of what was staged in and out"),
    "CpuDuration": CPU_ALL,
    "ProjectName": PROJECT,
    "SubmitHost": origin("client_host", how="a host name, else omitted"),
    "RuntimeEnvironment": origin("runtime_environments", settings=("ur_extensions",)),
    **{
        f"FileTransfers/{kind}/{part}": origin("transfers", settings=("ur_extensions",))
        for kind in ("FileUpload", "FileDownload")
        for part in ("URL", "Size", "StartTime", "EndTime", "RetrievedFromCache")
    },
}


FORMAT: Final = Format(
    name=UsageRecordFormat.name,
    title="OGF Usage Record 1.0",
    shape="record",
    make=UsageRecordFormat,
    service="SGAS",
    key_settings=frozenset({"target.record_id_prefix"}),
    content_type=UsageRecordFormat.content_type,
    versions=("1.0",),
    is_xml=True,
    grammar="ogf_ur.rng",
    grammar_source="grammar of GFD.98",
    record_id=Rules.RECORD_ID,
    dimensions=dimensions_of_run,
    summed_columns=summed_columns,
    is_readable=True,
    origins=ORIGINS,
)
