"""EMI Compute Accounting Record 1.2, as APEL accepts it.

Records are valid against the official schema, in which the order is strict, and by the rules of the APEL server (facts
on formats, 2; facts on receivers, 2), which are in `formats.rules.CarRules`. APEL silently refuses a whole message for
one record, so a record that would be refused is held here. `LAYOUT` is the layout of a record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from formats import fit
from formats.apel.text import CARRIED_RULE, carried, is_null
from formats.apel.totals import dimensions_of_run
from formats.apel.values import KEY_SETTINGS, cpu_ms, job_key, vo_parts
from formats.base import Format, FragmentCache, Note, Rendered
from formats.benchmark import BENCHMARKS, choose_benchmark, require_benchmark, score_text
from formats.hosts import car_submit_host, infrastructure_description, infrastructure_of, machine_name, middleware_name
from formats.job import Job
from formats.names import counts_as, dn_for, parse_fqan
from formats.origin import CPU_ALL, DESCRIPTION, GRID, PROJECT, SUBMIT_HOST, USER_NAME, VO_NAME, Origins, origin
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import LATEST_END_AFTER_NOW_S, SYNC_01, TextRule
from formats.rules import CarRules as Rules
from formats.text import LAST_INSTANT, date_time
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
    "": "http://eu-emi.eu/namespaces/2012/11/computerecord",
    "urf": "http://eu-emi.eu/namespaces/2012/11/computerecord",
}
"""Namespaces by prefix, as the root of a message declares them. APEL requires qualified attributes, hence the second.
"""

STATUS: Final = {"completed": "completed", "failed": "failed", "aborted": "aborted", "cancelled": "aborted"}
"""CAR's states of a finished run; it has none for a cancelled run."""

UNKNOWN: Final = "None"
"""The APEL server's word for an unknown value (facts on formats, 4.1)."""

FQAN: Final = "GroupAttribute@type=FQAN"

_process_id = number_element(Rules.PROCESS_ID, "ProcessId")
_group = text_element(Rules.GROUP, "Group")
_fqan = text_element(Rules.GROUP_ATTRIBUTE, "GroupAttribute", 'urf:type="FQAN"')
_vo_group = text_element(Rules.GROUP_ATTRIBUTE, "GroupAttribute", 'urf:type="vo-group"')
_vo_role = text_element(Rules.GROUP_ATTRIBUTE, "GroupAttribute", 'urf:type="vo-role"')
_apel_group = text_element(Rules.GROUP_ATTRIBUTE, "GroupAttribute", 'urf:type="group"')
_apel_role = text_element(Rules.GROUP_ATTRIBUTE, "GroupAttribute", 'urf:type="role"')
_project = text_element(Rules.PROJECT, "GroupAttribute", 'urf:type="ProjectName"')
_local_group = text_element(Rules.LOCAL_GROUP, "LocalGroup")

_KB_MAX: Final = 'urf:storageUnit="KB" urf:metric="max"'
_USER: Final = (
    "job.user_dn, job.local_user, job.local_group, job.fqans, job.vo, job.vo_issuer, job.project, job.account, "
    "job.infrastructure, job.endpoint_url, job.token_subject"
)
_SERVICE: Final = (
    "job.infrastructure, job.endpoint_url, job.user_dn, job.token_subject, job.fqans, job.middleware, "
    "job.middleware_version, job.system, job.lrms"
)
_PLACE: Final = (
    "job.endpoint_url, job.endpoint_type, job.cluster, job.queue, job.infrastructure, job.user_dn, "
    "job.token_subject, job.fqans, job.site"
)

LAYOUT: Final = (
    Call("identity"),
    SharedFragment("self._users", _USER),
    Text("job.name or None", Rules.JOB_NAME, "JobName"),
    Call("charge(job.charge, rules.CHARGE, notes) if job.charge is not None else ''"),
    "<Status>",
    Call("status"),
    "</Status>",
    Number("job.exit_code", Rules.EXIT_STATUS, "ExitStatus"),
    SharedFragment("self._services", _SERVICE),
    together(
        Duration("given('WallDuration', job.wall_ms, job)", Rules.WALL_S, "WallDuration"),
        Duration("given('CpuDuration', cpu_ms(job), job)", Rules.CPU_S, "CpuDuration", 'urf:usageType="all"'),
        Duration("job.cpu_user_ms", Rules.CPU_PART_S, "CpuDuration", 'urf:usageType="user"'),
        Duration("job.cpu_system_ms", Rules.CPU_PART_S, "CpuDuration", 'urf:usageType="system"'),
    ),
    SharedFragment("self._levels", "job.benchmarks"),
    together(
        Number("job.memory_rss_kib", Rules.AMOUNT, "Memory", f'{_KB_MAX} urf:type="Physical"'),
        Number("job.memory_virtual_kib", Rules.AMOUNT, "Memory", f'{_KB_MAX} urf:type="Shared"'),
    ),
    Number("job.swap_kib", Rules.AMOUNT, "Swap", f'{_KB_MAX} urf:type="Shared"'),
    together(
        Instant("job.submit", "TimeInstant", 'urf:type="Ctime"'),
        Instant("job.lrms_submit", "TimeInstant", 'urf:type="Qtime"'),
    ),
    Instant("job.eligible", "TimeInstant", 'urf:type="Etime"'),
    together(
        Number("job.nodes", Rules.COUNT, "NodeCount"),
        Number("job.cores or job.slots", Rules.PROCESSORS, "Processors"),
        Instant("job.end", "EndTime"),
        Instant("job.start", "StartTime"),
    ),
    SharedFragment("self._places", _PLACE),
    Call("self._hosts.of(job, notes) if job.hosts else ''"),
    Call(RESOURCES),
    "</UsageRecord>",
)
"""A record, from top to bottom, after its `identity`; the schema's order is strict."""


class ComputeRecordFormat:
    """Renders runs as EMI CAR for one view. It has no state except caches."""

    name = "emi-car"
    content_type = "application/xml"
    separator_bytes = len(SEPARATOR)

    def __init__(self, view: View) -> None:
        self._view = view
        self._message = XmlMessage(NAMESPACES, view.namespace_style)
        self._users = FragmentCache(self._user)
        self._services = FragmentCache(self._service)
        self._levels = FragmentCache(self._service_levels)
        self._places = FragmentCache(self._place)
        self._hosts = HostCache(Rules.HOST)

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message of these records."""
        return self._message.of(bodies)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of a message around its records."""
        return self._message.overhead_bytes

    def record(self, job: Job, created: int) -> Rendered:
        """Render one run; `created` is its createTime, epoch seconds.

        Raises `CannotRenderError` if a value that the schema or the server requires is missing or unusable: ids, state,
        wall and CPU time, benchmark, start and end in this order, machine, and site.
        """
        notes: list[Note] = []
        status = STATUS.get(job.status)
        if status is None:
            raise CannotRenderError(RuleCode.NOT_PUBLISHED, "Status", status=job.status)
        create_time = fit.create_time(created)
        record_id, escaped_id = fit.token(Rules.RECORD_ID, self._view.record_id_prefix + job.record_id, notes)
        global_id = fit.text(Rules.GLOBAL_JOB_ID, job.global_id, notes) or escaped_id
        _check_times(job, created)
        identity = (
            f'<UsageRecord><RecordIdentity urf:createTime="{create_time}" urf:recordId="{escaped_id}"/>'
            f"<JobIdentity><GlobalJobId>{global_id}</GlobalJobId>{self._local_ids(job, notes)}</JobIdentity>"
        )
        body = _render(self, job, identity, status, notes)
        return Rendered(self._message.styled(body), tuple(notes), record_id)

    def _local_ids(self, job: Job, notes: list[Note]) -> str:
        """LocalJobId, part of APEL's key, and ProcessIds. If there is no local id, the global one is used."""
        local_id = self._key(Rules.LOCAL_JOB_ID, job.local_id and self._view.local_id_prefix + job.local_id, notes)
        if not local_id:
            stand_in = job.global_id or job.record_id
            rule = "missing: the global job id is sent (official schema)"
            notes.append(Note("LocalJobId", rule, fit.shown(job.local_id or ""), fit.shown(stand_in)))
            local_id = self._key(Rules.LOCAL_JOB_ID, stand_in, notes)
            if not local_id:
                raise CannotRenderError(RuleCode.NO_JOB_ID, "LocalJobId")
        ids = "".join(_process_id(process_id, notes) for process_id in job.process_ids) if job.process_ids else ""
        return f"<LocalJobId>{local_id}</LocalJobId>{ids}"

    def _user(self, job: Job, notes: list[Note]) -> str:
        dn = self._name(Rules.GLOBAL_USER_NAME, dn_for(job, self._view), notes)
        vo, group, role = vo_parts(job, self._view)
        vo = None if vo is None or is_null(vo) else vo  # words that the server treats as missing in its text messages
        local_user = self._name(Rules.LOCAL_USER_ID, job.local_user, notes)
        if not local_user:
            notes.append(
                Note("LocalUserId", "missing: sent as the server's word for it (official schema)", "", UNKNOWN)
            )
            local_user = UNKNOWN
        return (
            "<UserIdentity>"
            + (f'<GlobalUserName urf:type="opensslCompat">{dn}</GlobalUserName>' if dn else "")
            + _group(self._ascii(Rules.GROUP, vo, notes), notes)
            + (self._group_attributes(job, vo, group, role, notes) if job.fqans else "")
            + _project(self._ascii(Rules.PROJECT, job.project or job.account, notes), notes)
            + f"<LocalUserId>{local_user}</LocalUserId>"
            + _local_group(self._ascii(Rules.LOCAL_GROUP, job.local_group, notes), notes)
            + "</UserIdentity>"
        )

    def _group_attributes(
        self, job: Job, vo: str | None, group: str | None, role: str | None, notes: list[Note]
    ) -> str:
        """The VOMS attributes, the primary one first: the server uses the first FQAN, and takes the VO from it.

        If it would count the record under another VO than `Group`, no FQAN is sent.
        """
        primary = job.fqans[0]
        first, others = "", list(dict.fromkeys(fqan for fqan in job.fqans if fqan != primary))
        if counts_as(primary, vo):
            first = _fqan(self._ascii(Rules.GROUP_ATTRIBUTE, primary, notes), notes)
            if not first:
                return ""
        else:
            rule = "not an FQAN from which APEL reads the VO in Group: every FQAN is omitted"
            notes.append(Note(FQAN, rule, fit.shown(", ".join(job.fqans)), None))
            others = []
        group = self._ascii(Rules.GROUP_ATTRIBUTE, group, notes)
        role = self._ascii(Rules.GROUP_ATTRIBUTE, role, notes)
        parts = [first, _vo_group(group, notes), _vo_role(role, notes)]
        parts += [_apel_group(group, []), _apel_role(role, [])]  # altered as above, noted once
        for fqan in others:
            if parse_fqan(fqan).group is None:
                notes.append(Note(FQAN, "not an FQAN: omitted", fit.shown(fqan), None))
            else:
                parts.append(_fqan(self._ascii(Rules.GROUP_ATTRIBUTE, fqan, notes), notes))
        return "".join(parts)

    def _ascii(self, rule: TextRule, value: str | None, notes: list[Note]) -> str | None:
        """A text unchanged, or in the ASCII form of APEL's text messages if the view requires this."""
        if not value or not self._view.ascii_names or (plain := carried(value)) == value:
            return value
        notes.append(Note(rule.field, CARRIED_RULE, fit.shown(value), fit.shown(plain)))
        return plain

    def _name(self, rule: TextRule, value: str | None, notes: list[Note]) -> str:
        return fit.text(rule, self._ascii(rule, value, notes), notes)

    def _key(self, rule: TextRule, value: str | None, notes: list[Note]) -> str:
        """A text that is part of APEL's key. No setting alters it, because it would be another record."""
        if value and self._view.ascii_names and not value.isascii():
            raise CannotRenderError(RuleCode.NOT_ASCII, rule.field, value=fit.shown(value))
        return fit.text(rule, value, notes)

    def _service(self, job: Job, notes: list[Note]) -> str:
        description = self._name(Rules.INFRASTRUCTURE, infrastructure_description(job, self._view), notes)
        middleware = self._name(Rules.MIDDLEWARE, middleware_name(job), notes)
        version = self._name(Rules.MIDDLEWARE, job.middleware_version, notes)
        return (
            f'<Infrastructure urf:type="{infrastructure_of(job)}"'
            + (f' urf:description="{description}"' if description else "")
            + "/>"
            + f'<Middleware urf:name="{middleware or UNKNOWN}"'
            + (f' urf:version="{version}"' if version else "")
            + "/>"
        )

    def _service_levels(self, job: Job, notes: list[Note]) -> str:
        """The chosen benchmark first, because APEL reads the first one, then the others that APEL knows."""
        chosen = require_benchmark(job, self._view, notes)
        known = [choose_benchmark(job, View(site="", benchmark=name)) for name in BENCHMARKS]
        levels = dict.fromkeys([chosen, *filter(None, known)])
        return "".join(
            f'<ServiceLevel urf:type="{level.type}">{score_text(level.value)}</ServiceLevel>' for level in levels
        )

    def _place(self, job: Job, notes: list[Note]) -> str:
        machine = fit.name(Rules.MACHINE_NAME, machine_name(job, self._view), notes)
        submit_host = self._name(Rules.SUBMIT_HOST, car_submit_host(job, self._view), notes)
        queue = self._name(Rules.QUEUE, job.queue, notes)
        if not queue:
            notes.append(Note("Queue", "missing: sent as the server's word for it (official schema)", "", UNKNOWN))
            queue = UNKNOWN
        site = self._key(Rules.SITE, job.site or self._view.site, notes)
        if not site:
            raise CannotRenderError(RuleCode.NO_SITE, "Site")
        return (
            f"<MachineName>{machine}</MachineName>"
            + (f"<SubmitHost>{submit_host}</SubmitHost>" if submit_host else "")
            + f'<Queue urf:description="execution">{queue}</Queue><Site urf:type="gocdb">{site}</Site>'
        )


def _given(field: str, value: int | None, job: Job) -> int:
    if value is None:
        raise fit.unreported(field, job.system)
    return value


def _check_times(job: Job, created: int) -> None:
    """StartTime and EndTime, which must be present, in this order, and in the range that APEL accepts."""
    start, end = _given("StartTime", job.start, job), _given("EndTime", job.end, job)
    if not 0 <= start <= end <= LAST_INSTANT:
        field = "EndTime" if start > end else "StartTime"
        raise CannotRenderError(RuleCode.BAD_TIMES, field, start=fit.shown(start), end=fit.shown(end))
    if end > created + LATEST_END_AFTER_NOW_S:
        raise CannotRenderError(RuleCode.END_IN_FUTURE, "EndTime", end=date_time(end))


_render = compiled(
    ("self", "job", "identity", "status", "notes"),
    LAYOUT,
    {
        "charge": fit.charge,
        "rules": Rules,
        "given": _given,
        "cpu_ms": cpu_ms,
        "consumable_resources": consumable_resources,
    },
)


ORIGINS: Final[Origins] = {
    **SHARED,
    **origins_of(LAYOUT),
    "UserIdentity/GlobalUserName": msgspec.structs.replace(USER_NAME, settings=("dn", "dn_key", "ascii_names")),
    "JobIdentity/LocalJobId": origin(
        "local_id", "global_id", "record_id", how="the local id, else the global id", settings=("local_id_prefix",)
    ),
    "UserIdentity/Group": msgspec.structs.replace(VO_NAME, settings=("vo_spelling", "ascii_names")),
    "UserIdentity/GroupAttribute[FQAN]": origin(
        "fqans",
        how="the primary one first; omitted if APEL would read another VO from it",
        settings=("ascii_names",),
    ),
    "UserIdentity/GroupAttribute[vo-group]": origin(
        "fqans", how="of the primary one, as the specification names it", settings=("vo_spelling",)
    ),
    "UserIdentity/GroupAttribute[vo-role]": origin(
        "fqans", how="of the primary one, as the specification names it", settings=("vo_spelling",)
    ),
    "UserIdentity/GroupAttribute[group]": origin(
        "fqans", how="of the primary one, as APEL's server names it", settings=("vo_spelling",)
    ),
    "UserIdentity/GroupAttribute[role]": origin(
        "fqans", how="of the primary one, as APEL's server names it", settings=("vo_spelling",)
    ),
    "UserIdentity/GroupAttribute[ProjectName]": PROJECT,
    "UserIdentity/LocalUserId": origin("local_user", how="the local user, else the server's word None"),
    "UserIdentity/LocalGroup": origin("local_group"),
    "Infrastructure@type": GRID,
    "Infrastructure@description": DESCRIPTION,
    "Middleware@name": origin("middleware", "system", how="the middleware, else the batch system"),
    "Middleware@version": origin("middleware_version"),
    "CpuDuration[all]": CPU_ALL,
    "SubmitHost": SUBMIT_HOST,
    "Queue@description": origin(how="the same in every record"),
    "Site": origin(how="the name of the site in the configuration"),
}


FORMAT: Final = Format(
    name=ComputeRecordFormat.name,
    title="EMI Compute Accounting Record 1.2",
    shape="record",
    make=ComputeRecordFormat,
    service="APEL",
    key="local id",
    record_key=job_key,
    dimensions=partial(dimensions_of_run, names_submit_host_of_local_jobs=False),
    key_settings=KEY_SETTINGS,
    content_type=ComputeRecordFormat.content_type,
    versions=("1.2",),
    is_xml=True,
    grammar="emi_car.rng",
    grammar_source="grammar of EMI CAR 1.2",
    record_id=Rules.RECORD_ID,
    is_readable=True,
    origins=ORIGINS,
    needs_benchmark=True,
    sync=SYNC_01.name,
    has_ascii_names=True,
)
