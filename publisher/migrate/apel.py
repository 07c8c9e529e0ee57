"""Move from the APEL client: read client.cfg, parser.cfg (one for each batch system), and SSM's sender.cfg.

Names and defaults are those of apel 2.x and ssm 3 and 4. Only the client's database has what was sent, so the
administrator has to give it (`delivered_until`, or `shadow --take-over`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from formats.benchmark import canonical_name
from formats.registry import FORMATS
from formats.view import SummaryCounts
from publisher.config.sources import SOURCE_KINDS
from publisher.errors import UsageError
from publisher.migrate.proposal import Block, BlockFile, Kind, Proposal, read_blocks
from publisher.targets.message_files import elements_of
from publisher.text import iso


class _BatchSystem(NamedTuple):
    """The counterpart of a batch system of APEL's parser. `remarks`: kind, place (empty: the type), and text.

    `counts`: the numbers that the client has in the key of a summary (facts on receivers, last section).
    """

    type: str
    remarks: tuple[tuple[Kind, str, str], ...] = ()
    has_daily_files: bool = False
    counts: SummaryCounts = "nodes-and-cores"


_LOCAL_TIMES: Final = (
    "choose", "timezone", "logs are in local time: set `timezone` of the source to that of the server"
)  # fmt: skip
_CORES_OF_ENTRIES: Final = (
    "the client counts one core for {} of several: such summaries have another key there, which `shadow` shows and "
    "`shadow --take-over` replaces"
)
_SYSTEMS: Final = {
    "PBS": _BatchSystem(
        "torque",
        (
            ("choose", "", 'PBS is TORQUE, or PBS Pro and OpenPBS: for the latter set type = "pbs"'),
            _LOCAL_TIMES,
            ("choose", "Processors", _CORES_OF_ENTRIES.format("an entry `n1/0*8` of PBS Pro")),
        ),
        has_daily_files=True,
    ),
    "SGE": _BatchSystem("gridengine", counts="cores"),
    "LSF": _BatchSystem("lsf", (("choose", "Processors", _CORES_OF_ENTRIES.format("an entry `8*n1`")),)),
    "SLURM": _BatchSystem(
        "slurm",
        (
            ("choose", "path", "CPUTimeRAW is not the CPU time that was used: set the path to /usr/bin/sacct"),
            _LOCAL_TIMES,
        ),
    ),
    "HTCONDOR": _BatchSystem("htcondor", counts="cores"),
}
"""By the `type` in the parser's configuration."""
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
_SPEC: Final = re.compile(r"manual_spec\d+").fullmatch
_GRID: Final = "/etc/grid-security"
TARGET: Final = "apel"

_KNOWN: Final = {
    "parser": {
        "site_info": {"site_name", "lrms_server"},
        "blah": {"enabled", "dir", "filename_prefix", "filename_pattern", "subdirs"},
        "batch": {
            "enabled", "reparse", "type", "parallel", "dir", "filename_prefix", "filename_pattern", "subdirs",
            "scale_host_factor", "ge_ms_timestamps",
        },
    },
    "client": {
        "spec_updater": {"enabled", "site_name", "ldap_host", "ldap_port", "lrms_server", "spec_type", "spec_value"},
        "joiner": {"enabled", "local_jobs"},
        "unloader": {
            "enabled", "dir_location", "send_summaries", "dict_benchmark_type", "withhold_dns", "include_vos",
            "exclude_vos", "interval", "gap_start", "gap_end", "send_ur",
        },
        "ssm": {"enabled"},
    },
    "sender": {
        "sender": {"protocol"},
        "broker": {"host", "port", "use_ssl", "bdii", "network"},
        "certificates": {"certificate", "key", "capath", "server_cert", "verify_server_cert"},
        "messaging": {"ams_project", "destination", "token", "path", "path_type"},
    },
}  # fmt: skip
_ELSEWHERE: Final = {
    "db": "the client's database is not used; the publisher has its own store",
    "logging": "messages go to standard error, under systemd to the journal",
}


def from_apel(paths: Sequence[Path], site: str = "", delivered_until: int | None = None) -> Proposal:
    """Make the configuration that replaces these files, in any order. Raises `UsageError`."""
    files = [read_blocks(path, keep_case=False) for path in paths]
    return _ApelClient(files, site, delivered_until).proposal


def _kind_of(file: BlockFile) -> str:
    for kind, known in _KNOWN.items():
        if (known.keys() - {"sender", "broker"} | ({"broker"} if kind == "sender" else set())) & file.blocks.keys():
            return kind
    raise UsageError(
        f"{file.path} is neither a client.cfg, a parser.cfg nor a sender.cfg of APEL",
        hint="Name the files in /etc/apel",
    )


class _ApelClient:
    def __init__(self, files: Sequence[BlockFile], site: str, delivered_until: int | None) -> None:
        self.proposal = Proposal(", ".join(str(file.path) for file in files))
        by_kind: dict[str, list[BlockFile]] = {"parser": [], "client": [], "sender": []}
        for file in files:
            by_kind[_kind_of(file)].append(file)
            self._remark_unknown(_kind_of(file), file)
        for kind in ("client", "sender"):
            if len(by_kind[kind]) > 1:
                raise UsageError(f"there are several {kind}.cfg", hint="Name one of them")
        self._client = by_kind["client"][0] if by_kind["client"] else None
        self._sender = by_kind["sender"][0] if by_kind["sender"] else None
        self._delivered_until = delivered_until
        self._counts: set[SummaryCounts] = set()
        for file in by_kind["parser"]:
            self._parser(file)
        self._benchmarks()
        self._target()
        self._site(site, [*by_kind["parser"], *by_kind["client"]])
        if not by_kind["parser"]:
            text = "no parser.cfg is given: add [sources.NAME] for each batch system, or import with that file"
            self.proposal.remark("choose", "parser.cfg", text)

    def _remark_unknown(self, kind: str, file: BlockFile) -> None:
        for number, line in file.problems:
            where = f"{file.path.name} line {number}"
            self.proposal.remark("not carried over", where, f"is not understood: {line[:80]!r}")
        for name, block in file.blocks.items():
            if name in _ELSEWHERE:
                self.proposal.remark("differs", f"{file.path.name} [{name}]", _ELSEWHERE[name])
                continue
            known = _KNOWN[kind].get(name, set())
            for option in block.options:
                if option.name not in known and not (name == "spec_updater" and _SPEC(option.name)):
                    where = f"{file.path.name} [{name}] {option.name}"
                    self.proposal.remark("not carried over", where, "is not known")

    def _flag(self, block: Block, name: str, *, default: bool) -> bool:
        value = block.get(name)
        if value is None:
            return default
        if value.lower() not in _TRUE | _FALSE:
            self.proposal.remark(
                "choose", f"[{block.name}] {name}", f"{value!r} is neither true nor false; taken as {default}"
            )
            return default
        return value.lower() in _TRUE

    # --- parser.cfg

    def _parser(self, file: BlockFile) -> None:
        batch, blah, info = file.block("batch"), file.block("blah"), file.block("site_info")
        where = f"{file.path.name} [batch]"
        if not self._flag(batch, "enabled", default=True):
            self.proposal.remark("differs", where, "is not enabled: no source is written for it")
            return
        value = batch.get("type") or ""
        system = _SYSTEMS.get(value.upper())
        if system is None:
            self.proposal.remark(
                "choose", f"{where} type", f"{value!r} is not a batch system of APEL: no source is written for it"
            )
            return
        source: dict[str, Any] = {"type": system.type}
        path = self._path(batch, where)
        if path is not None:
            folder, _, files = path.rpartition("/")
            days = system.has_daily_files and re.fullmatch(r"\d*\*", files) is not None
            source["path"] = folder if days else path
        if (machine := info.get("lrms_server")) is not None:
            source["cluster"] = machine
        self._remarks_on(system, batch, where)
        if self._flag(blah, "enabled", default=bool(blah.options)) and blah.options:
            logs = self._path(blah, f"{file.path.name} [blah]")
            if logs is not None:
                source["grid_log"] = {"path": logs}
        self.proposal.sources[self._free_source(machine or system.type)] = source

    def _free_source(self, preferred: str) -> str:
        name, number = preferred.partition(".")[0] or "batch", 2
        while name in self.proposal.sources:
            name, number = f"{preferred.partition('.')[0]}-{number}", number + 1
        return name

    def _path(self, block: Block, where: str) -> str | None:
        folder = block.get("dir")
        if folder is None:
            self.proposal.remark("choose", f"{where} dir", "is missing: set `path` of the source")
            return None
        if (pattern := block.get("filename_pattern")) is not None and not block.get("filename_prefix"):
            text = f"{pattern!r} is a regular expression: set `path` to a pattern of file names such as {folder}/*.log"
            self.proposal.remark("choose", f"{where} filename_pattern", text)
        deep = "/**" if self._flag(block, "subdirs", default=False) else ""
        prefix = block.get("filename_prefix") or ""
        folder = folder.rstrip("/")
        return f"{folder}{deep}/{prefix}*" if prefix or deep else folder

    def _remarks_on(self, system: _BatchSystem, batch: Block, where: str) -> None:
        remark = self.proposal.remark
        for kind, place, text in system.remarks:
            remark(kind, place or f"{where} type", text)
        if self._flag(batch, "parallel", default=False):
            self._counts.add(system.counts)
        else:
            self._counts.add("none")
            text = (
                "the client sent no cores, which counts one a job. `summary_counts` keeps that, so that summaries "
                "replace the client's; once they have, remove it, and the cores that were granted are sent"
            )
            remark("choose", f"{where} parallel", text)
        if self._flag(batch, "scale_host_factor", default=False):
            text = "durations are not multiplied by LSF's host factor: set `benchmarks` of the source by host instead"
            remark("not carried over", f"{where} scale_host_factor", text)
        if batch.get("ge_ms_timestamps") is not None and system is _SYSTEMS["SGE"]:
            remark("differs", f"{where} ge_ms_timestamps", "not needed: milliseconds are recognised in each line")
        if self._flag(batch, "reparse", default=False):
            remark(
                "differs", f"{where} reparse", "every file is read once; `usage-publisher collect --since` reads again"
            )

    # --- client.cfg

    def _benchmarks(self) -> None:
        specs = self._client.block("spec_updater") if self._client is not None else Block("spec_updater", 0)
        benchmarks: dict[str, dict[str, Any]] = {}
        for option in specs.options:
            if _SPEC(option.name):
                parts = [part.strip() for part in option.value.split(",")]
                score = self._score(parts[1], parts[2], option.name) if len(parts) == 3 else None
                if score is None:
                    self.proposal.remark(
                        "choose", f"[spec_updater] {option.name}", f"{option.value!r} is not understood"
                    )
                else:
                    benchmarks[parts[0]] = score
        if not benchmarks and (kind := specs.get("spec_type")) and (value := specs.get("spec_value")):
            score = self._score(kind, value, "spec_value")
            if score is not None:
                benchmarks["local jobs"] = score
        sources = self.proposal.sources.values()
        scores = list(benchmarks.values())
        if scores and all(score == scores[0] for score in scores):
            for source in sources:
                source["benchmark"] = scores[0]
            if "local jobs" in benchmarks:
                text = (
                    "is used for every job without a score; APEL uses it for local jobs and asks a BDII for the others"
                )
                self.proposal.remark("choose", "[spec_updater] spec_value", text)
            return
        for name, score in benchmarks.items():
            known = f"{score['type']} {score['value']}"
            text = f"jobs through {name} have {known}: set it in [[sources.NAME.benchmarks]] by queue or host"
            self.proposal.remark("choose", "[spec_updater] manual_spec", text)
        if not benchmarks:
            text = "no BDII is queried: set `benchmark` of each source, or its jobs are held"
            self.proposal.remark("choose", "[spec_updater] ldap_host", text)

    def _score(self, kind: str, value: str, where: str) -> dict[str, Any] | None:
        try:
            score = float(value)
        except ValueError:
            score = 0.0
        if canonical_name(kind) is None or not 0 < score < float("inf"):
            self.proposal.remark(
                "choose", f"[spec_updater] {where}", f"{kind} {value} is not a benchmark that APEL accepts"
            )
            return None
        return {"type": canonical_name(kind), "value": score}

    def _records(self, unloader: Block) -> dict[str, Any]:
        summaries = self._flag(unloader, "send_summaries", default=False)
        new = self._flag(unloader, "dict_benchmark_type", default=False)
        if self._flag(unloader, "send_ur", default=False) and not summaries:
            return {"records": "emi-car"}
        if summaries:
            return {"records": "apel-summary", "version": "0.4" if new else "0.2"}
        return {"records": "apel-job", "version": "0.4" if new else "0.3"}

    def _selection(self, target: dict[str, Any], unloader: Block) -> None:
        remark = self.proposal.remark
        if included := unloader.get("include_vos"):
            target["vo"] = [vo.strip() for vo in included.split(",") if vo.strip()]
            target["unknown_vo"] = "skip"
        elif excluded := unloader.get("exclude_vos"):
            text = f"there is no list of VOs to leave out ({excluded}): list those to send in `vo`"
            remark("choose", "[unloader] exclude_vos", text)
        if self._flag(unloader, "withhold_dns", default=False):
            if FORMATS[target["records"]].is_snapshot:
                remark(
                    "differs", "[unloader] withhold_dns", "APEL refuses it for summaries; here it applies to them too"
                )
            target["dn"] = "withhold"
        joiner = self._client.block("joiner") if self._client is not None else Block("joiner", 0)
        target["local_jobs"] = "send" if self._flag(joiner, "local_jobs", default=False) else "skip"
        if target["local_jobs"] == "send" and "vo" in target:
            text = "the client takes the Unix group of a local job for its VO: give such jobs their VO by [[map]] rules"
            remark("choose", "[joiner] local_jobs", text)
        if target["local_jobs"] == "send" and self._may_have_sent_steps():
            text = (
                "the client counts steps of Slurm jobs (1087.batch) as jobs of nobody: `shadow --take-over` sends such "
                "summaries with no jobs; job records of steps stay at APEL until APEL deletes them"
            )
            remark("differs", "[joiner] local_jobs", text)
        self._interval(unloader, is_snapshot=FORMATS[target["records"]].is_snapshot)

    def _may_have_sent_steps(self) -> bool:
        return any(SOURCE_KINDS[source["type"]].apel_sends_steps for source in self.proposal.sources.values())

    def _interval(self, unloader: Block, *, is_snapshot: bool) -> None:
        interval = unloader.get("interval") or "latest"
        if interval == "latest":
            return
        republish = f"Here `usage-publisher republish {TARGET} --since TIME --until TIME` sends a period again"
        if is_snapshot:
            text = f"{interval!r}: with `gap` the client sends no summaries. {republish}"
            self.proposal.remark("differs", "[unloader] interval", text)
            return
        text = (
            f"{interval!r} does not mark what it sends: run the client once more with `interval = latest`, which sends "
            "every job that it did not send before with `latest` (APEL replaces a record that it has), and export all "
            f"rows of VJobRecords, not those up to LastUpdated. {republish}"
        )
        self.proposal.remark("choose", "[unloader] interval", text)

    def _target(self) -> None:
        unloader = self._client.block("unloader") if self._client is not None else Block("unloader", 0)
        if self._client is None:
            text = "no client.cfg is given: what is sent is APEL's default, job records"
            self.proposal.remark("choose", "client.cfg", text)
        elif not self._flag(unloader, "enabled", default=True):
            self.proposal.remark(
                "differs", "[unloader] enabled", "is false: the client sent nothing; this target sends"
            )
        target = {**self._where(unloader), **self._records(unloader)}
        self._selection(target, unloader)
        self._keys(target)
        self._state(target, unloader)
        self.proposal.targets[TARGET] = target

    def _keys(self, target: dict[str, Any]) -> None:
        """Spell the keys of summaries and sync counts as the client does, so that ours replace its own."""
        target["submit_host"] = target["vo_spelling"] = "apel-client"
        if FORMATS[target["records"]].shape != "totals":
            return
        if len(self._counts) > 1:
            text = "the client sent NodeCount and Processors of one batch system only: see `summary_counts`"
            self.proposal.remark("choose", "[batch] parallel", text)
        elif self._counts - {"nodes-and-cores"}:
            (target["summary_counts"],) = self._counts

    # --- sender.cfg

    def _where(self, unloader: Block) -> dict[str, Any]:
        outgoing = f"{(unloader.get('dir_location') or '/var/spool/apel').rstrip('/')}/outgoing"
        ssm = self._client.block("ssm") if self._client is not None else Block("ssm", 0)
        if not self._flag(ssm, "enabled", default=True):
            text = f"is false: messages are put into {outgoing} for another SSM to send, as before"
            self.proposal.remark("differs", "[ssm] enabled", text)
            return {"type": "directory", "path": outgoing, "layout": "dirq"}
        sender = self._sender
        if sender is None:
            self.proposal.remark(
                "choose", "sender.cfg", "is not given: messages are put into SSM's queue, and SSM sends them"
            )
            return {"type": "directory", "path": outgoing, "layout": "dirq"}
        broker, messaging = sender.block("broker"), sender.block("messaging")
        certificates = sender.block("certificates")
        for key, name, default in (
            ("certificate", "certificate", f"{_GRID}/hostcert.pem"),
            ("key", "key", f"{_GRID}/hostkey.pem"),
            ("ca_directory", "capath", f"{_GRID}/certificates"),
        ):
            self.proposal.credentials[key] = certificates.get(name) or default
        target = self._broker(broker, messaging, sender.block("sender").get("protocol"))
        if (receiver := certificates.get("server_cert")) is not None:
            target["encrypt_to"] = receiver
        if messaging.get("token") is not None:
            text = "is not used: the certificate gets a token from the messaging service"
            self.proposal.remark("choose", "[messaging] token", text)
        if (messaging.get("path_type") or "dirq") != "dirq":
            text = "messages are sent to the service directly, without a directory"
            self.proposal.remark("differs", "[messaging] path_type", text)
        return target

    def _broker(self, broker: Block, messaging: Block, protocol: str | None) -> dict[str, Any]:
        remark = self.proposal.remark
        host = broker.get("host")
        if (protocol or "STOMP").upper() != "AMS":
            text = "messages go to the ARGO messaging service instead of a STOMP broker; check url, project, and topic"
            remark("choose", "[sender] protocol", text)
            host = None
        if host is None:
            host = "msg.argo.grnet.gr"
            remark("choose", "[broker] host", f"is missing: EGI's service {host} is used")
        if ":" in host:
            host = host.partition(":")[0]
            remark("differs", "[broker] host", "the port is omitted: the default port of the service is used")
        target: dict[str, Any] = {"type": "ams", "url": f"https://{host}"}
        for key, name, default in (("project", "ams_project", "accounting"), ("topic", "destination", "gLite-APEL")):
            value = messaging.get(name) or default
            if not _NAME(value):
                remark(
                    "choose",
                    f"[messaging] {name}",
                    f"{value!r} is not a name of the messaging service; {default} is used",
                )
                value = default
            target[key] = value
        return target

    # --- state

    def _state(self, target: dict[str, Any], unloader: Block) -> None:
        summaries = FORMATS[target["records"]].is_snapshot
        if self._delivered_until is not None:
            target["delivered_until"] = iso(self._delivered_until)
            text = f"jobs that ended up to {iso(self._delivered_until)} count as delivered by the APEL client, as given"
            self.proposal.remark("state", "delivered_until", text)
        elif not summaries:
            text = (
                "what the client has sent is in its database: export all rows of VJobRecords, and `usage-publisher "
                f"shadow {TARGET} --against FILE --take-over` counts them as delivered. Else all jobs in the logs are "
                "sent again, and those whose LocalJobId is spelled otherwise count twice"
            )
            self.proposal.remark("choose", "delivered_until", text)
        if summaries:
            text = "whole months replace the client's: set from when on the logs of each source are complete"
            self.proposal.remark("choose", "complete_since", text)
            text = "the first month that is sent from here; switch at the beginning of a month if possible"
            self.proposal.remark("choose", "since", text)
        messaging = self._sender.block("messaging") if self._sender is not None else Block("messaging", 0)
        spool = (unloader.get("dir_location") or "/var/spool/apel").rstrip("/")
        queue = Path(messaging.get("path") or f"{spool}/outgoing")
        try:
            left = sum(1 for _ in elements_of(queue))
        except UsageError as error:
            self.proposal.remark("state", str(queue), f"it is unknown whether messages are left in it: {error.message}")
            return
        if left:
            text = f"{left} messages are left in it: `usage-publisher import ssm-queue {queue} {TARGET}` sends them"
            self.proposal.remark("state", str(queue), text)

    def _site(self, given: str, files: Sequence[BlockFile]) -> None:
        named = [file.block(name).get("site_name") for file in files for name in ("site_info", "spec_updater")]
        names = list(dict.fromkeys(name for name in named if name is not None))
        self.proposal.site = given or next(iter(names), "")
        if len(names) > 1 and not given:
            text = f"there are several: {', '.join(names)}. A source of another site has its own `site`"
            self.proposal.remark("choose", "site_name", text)
        if not self.proposal.site:
            self.proposal.remark("choose", "site_name", "is not given: set site.name, or give --site")
