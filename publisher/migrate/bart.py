"""Move from SGAS' BaRT: read bart.conf with its maps of users and VOs, and the state of its logger and registrant.

BaRT's record ids are `HOST:JOBID` or `HOST:JOBID:START`; ours differ, so SGAS cannot recognise a job that both sent.
`delivered_until` says what BaRT sent; SGAS would count jobs twice if it were too early.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from publisher.errors import UsageError
from publisher.migrate.proposal import Block, BlockFile, Proposal, read_blocks
from publisher.text import iso

_GRID: Final = "/etc/grid-security"
_STATE: Final = "/var/spool/bart"
_RECORDS: Final = "/var/spool/bart/usagerecords"
_MAPPED: Final = re.compile(r'\s*(.*?)\s*"(.*)"').match
_URL: Final = re.compile(r"https?://[^\s/]+\S*").fullmatch
_END: Final = re.compile(rb"[ ;]end=(\d{9,11})\b")
_JOB_ENDED: Final = b";E;"
_KNOWN: Final = {
    "common": {
        "logdir", "log_dir", "hostname", "usermap", "vomap", "defaultvo", "statedir", "x509_user_key", "x509_user_cert",
        "x509_cert_dir",
    },
    "logger": {"log_all", "log_vo", "batch_size", "timeout"},
    "torque": {"statefile", "spooldir"},
    "slurm": {"statefile", "idtimestamp"},
}  # fmt: skip
_NEEDLESS: Final = {
    "logfile": "messages go to standard error, or to the journal under systemd",
    "registrant_logfile": "messages go to standard error, or to the journal under systemd",
    "loglevel": "use --verbose or --quiet",
    "stderr_level": "use --verbose or --quiet",
    "suppress_usermap_info": "`usage-publisher check` reports rules that match nothing",
    "record_lifetime": "the store keeps what was sent; there is no archive of records to clear",
    "records_directory": "there are no files of records between reading and sending",
    "state_directory": "there are no files of records between reading and sending",
    "archive_directory": "there are no files of records between reading and sending",
    "statefile_default": "the first collect reads everything from `complete_since` on",
    "max_days": "sacct is called for one week at a time",
}
_OTHERWISE: Final = {
    "processors_unit": "Processors is always the number of cores that were allocated",
    "charge_unit": "records have no charge",
    "charge_scale": "records have no charge",
    "users": "the jobs of all users are read: exclude some with `local_jobs` or `vo` of the target",
    "namespace": "usage records have the namespace of the standard",
    "records_tag": "usage records have the names of the standard",
    "registration_tag": "the service is used at its URL; it is not asked where to register",
}


def from_bart(path: Path, site: str = "", delivered_until: int | None = None, zone: str = "") -> Proposal:
    """Make the configuration that replaces a bart.conf. `zone`: of its host, for its state. Raises `UsageError`."""
    return _Bart(read_blocks(path, keep_case=False), site, delivered_until, zone).proposal


class _Bart:
    def __init__(self, conf: BlockFile, site: str, delivered_until: int | None, zone: str) -> None:
        self._conf = conf
        self._common = conf.block("common")
        self._zone = zone
        self._marks: list[int] = []
        self.proposal = Proposal(str(conf.path))
        self._remark_unknown()
        self._credentials()
        self._sources()
        self._targets(delivered_until)
        self.proposal.site = site
        if not site:
            text = "BaRT does not have it, and usage records do not contain it: set site.name, or give --site"
            self.proposal.remark("choose", "site", text)

    def _value(self, block: Block, name: str) -> str | None:
        """A value without quotes, as BaRT reads it."""
        value = block.get(name)
        return value.replace('"', "").replace("'", "").strip() or None if value is not None else None

    def _remark_unknown(self) -> None:
        for number, line in self._conf.problems:
            self.proposal.remark("not carried over", f"line {number}", f"is not understood: {line[:80]!r}")
        for name, block in self._conf.blocks.items():
            for option in block.options:
                where = f"[{name}] {option.name}"
                if option.name in _NEEDLESS:
                    self.proposal.remark("differs", where, _NEEDLESS[option.name])
                elif option.name in _OTHERWISE:
                    self.proposal.remark("not carried over", where, _OTHERWISE[option.name])
                elif option.name not in _KNOWN.get(name, set()) and name != "maui":
                    self.proposal.remark("not carried over", where, "is not known")

    def _credentials(self) -> None:
        self.proposal.credentials = {
            "certificate": self._value(self._common, "x509_user_cert") or f"{_GRID}/hostcert.pem",
            "key": self._value(self._common, "x509_user_key") or f"{_GRID}/hostkey.pem",
            "ca_directory": self._value(self._common, "x509_cert_dir") or f"{_GRID}/certificates",
        }

    # --- sources

    def _sources(self) -> None:
        host = self._value(self._common, "hostname")
        if host is None:
            text = (
                "BaRT uses the name of its host: set `cluster` of the source to it, because it is MachineName at SGAS"
            )
            self.proposal.remark("choose", "[common] hostname", text)
        systems = {"torque": self._torque, "slurm": self._slurm}
        for name, block in self._conf.blocks.items():
            if name in {"common", "logger"}:
                continue
            if name not in systems:
                text = (
                    "Maui's statistics are not read: read the accounting of the batch system below it (TORQUE)"
                    if name == "maui"
                    else "is not a batch system that is known"
                )
                self.proposal.remark("choose", f"[{name}]", text)
                continue
            source = systems[name](block)
            if host is not None:
                source["cluster"] = host
            rules = [*source.pop("map", ()), *self._users()]
            if rules:
                source["map"] = rules
            self.proposal.sources[name] = source
        if not self.proposal.sources:
            self.proposal.remark("choose", "sources", "no batch system is configured")

    def _torque(self, block: Block) -> dict[str, Any]:
        spool = (self._value(block, "spooldir") or "/var/spool/torque").rstrip("/")
        path = f"{spool}/server_priv/accounting"
        text = "its logs are in local time: set `timezone` of the source to that of the server"
        self.proposal.remark("choose", "[torque]", text)
        self._torque_state(block, Path(path))
        return {"type": "torque", "path": path, "map": self._vos(local_users=True)}

    def _slurm(self, block: Block) -> dict[str, Any]:
        self._slurm_state(block)
        return {"type": "slurm", "path": "/usr/bin/sacct", "map": self._vos(local_users=False)}

    def _mapped(self, option: str, default: str) -> Iterator[tuple[str, str]]:
        value = self._value(self._common, option)
        path = Path(value or default)
        try:
            lines = path.read_bytes()[: 16 * 2**20].decode("utf-8", "backslashreplace").splitlines()
        except OSError as error:
            if value is not None or not isinstance(error, FileNotFoundError):
                self.proposal.remark("choose", f"[common] {option}", f"{path} cannot be read: {error.strerror}")
            return
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.strip().startswith("#"):
                continue
            match = _MAPPED(line)
            if match is None:
                self.proposal.remark(
                    "not carried over", f"{path} line {number}", "is not a mapping; BaRT ignores it too"
                )
            elif match[2].strip() not in {"-", ""}:
                yield match[1].strip(), match[2].strip()

    def _users(self) -> Iterator[dict[str, Any]]:
        for user, dn in self._mapped("usermap", "/etc/bart/usermap"):
            if not dn.startswith("/") or "=" not in dn:
                self.proposal.remark("choose", f"usermap {user}", f"{dn!r} is not a distinguished name")
                continue
            yield {"when": {"local_user": user}, "dn": dn}

    def _vos(self, *, local_users: bool) -> Iterator[dict[str, Any]]:
        """The rules for VOs by account, and by local user if there are no accounts."""
        mapped = list(self._mapped("vomap", "/etc/bart/vomap"))
        for name, vo in mapped:
            yield {"when": {"account": name}, "vo": vo}
        if local_users:
            for name, vo in mapped:
                yield {"when": {"local_user": name}, "vo": vo}
        if (default := self._value(self._common, "defaultvo")) is not None:
            yield {"vo": default}

    # --- targets

    def _targets(self, given: int | None) -> None:
        host = self._value(self._common, "hostname")
        machine = {"machine_name": host} if host is not None else {}  # a job's id may name another host, the server
        common = machine | self._batches() | self._delivered(given)
        by_url: dict[str, list[str | None]] = {}
        for url, vo in self._services():
            if _URL(url):
                by_url.setdefault(url.rstrip("/"), []).append(vo)
            else:
                self.proposal.remark("choose", "[logger]", f"{url!r} is not a URL: the target is left out")
        for url, vos in by_url.items():
            host = url.partition("://")[2].partition("/")[0].partition(":")[0]
            target: dict[str, Any] = {"type": "sgas", "url": url, **common}
            if None not in vos:
                target |= {"vo": list(dict.fromkeys(vos)), "unknown_vo": "skip"}
            self.proposal.targets[self.proposal.free_name(host.partition(".")[0], "sgas")] = target
        if not by_url:
            self.proposal.remark("choose", "[logger] log_all", "no service is named: nothing would be sent")

    def _batches(self) -> dict[str, Any]:
        logger = self._conf.block("logger")
        limits: dict[str, Any] = {}
        size = self._value(logger, "batch_size")
        if size is not None and size.isdigit() and int(size):
            limits["batch_records"] = int(size)
        elif size is not None:
            text = f"{size!r} is not a number of records; the default is used"
            self.proposal.remark("choose", "[logger] batch_size", text)
        answering = (self._value(logger, "timeout") or "").partition(",")[2].strip()
        if re.fullmatch(r"\d+(\.\d+)?", answering) and float(answering) > 0:
            limits["timeout"] = f"{answering}s"
        return limits

    def _services(self) -> Iterator[tuple[str, str | None]]:
        """Each service, with the VO whose records it gets; None: all records."""
        logger = self._conf.block("logger")
        for url in (self._value(logger, "log_all") or "").split():
            yield url, None
        for pair in filter(None, (self._value(logger, "log_vo") or "").split(",")):
            words = pair.split()
            if len(words) == 2:
                yield words[1], words[0]
            else:
                self.proposal.remark("choose", "[logger] log_vo", f"{pair!r} is not a VO and URL")

    # --- state

    def _delivered(self, given: int | None) -> dict[str, Any]:
        waiting = self._unregistered()
        if waiting:
            text = (
                f"{waiting} records are not registered yet: let `bart-registrant` send them before the first run "
                "here, because they count as delivered"
            )
            self.proposal.remark("choose", "usage records of BaRT", text)
        mark = given if given is not None else min(self._marks) if self._marks else None
        if mark is None:
            text = (
                "it is unknown what BaRT has sent: set `delivered_until` (or give --delivered-until), or SGAS counts "
                "all jobs in the logs twice, because BaRT's record ids differ from ours"
            )
            self.proposal.remark("choose", "delivered_until", text)
            return {}
        if given is None and min(self._marks) < max(self._marks):
            text = (
                f"BaRT sent jobs up to {iso(min(self._marks))} of one batch system and up to {iso(max(self._marks))} "
                "of another; the earlier one is set. SGAS counts twice what was delivered between them, unless `shadow "
                "--take-over --against` BaRT's archive of records recognises it before the first run"
            )
            self.proposal.remark("choose", "delivered_until", text)
        by = "as given" if given is not None else "as its state says"
        self.proposal.remark(
            "state", "delivered_until", f"jobs that ended up to {iso(mark)} count as delivered by BaRT, {by}"
        )
        return {"delivered_until": iso(mark)}

    def _unregistered(self) -> int:
        folder = Path(self._value(self._common, "logdir") or self._value(self._common, "log_dir") or _RECORDS)
        urs = folder / (self._value(self._conf.block("logger"), "records_directory") or "urs")
        try:
            return sum(1 for entry in urs.iterdir() if entry.is_file())
        except FileNotFoundError:
            return 0
        except OSError as error:
            self.proposal.remark(
                "choose", str(urs), f"cannot be read: {error.strerror}; records in it are not registered yet"
            )
            return 0

    def _state_of(self, block: Block) -> str | None:
        folder = self._value(self._common, "statedir") or _STATE
        path = Path(folder, self._value(block, "statefile") or f"{block.name}.state")
        try:
            return path.read_text("utf-8", "replace").split("\n")[0].strip() or None
        except OSError as error:
            self.proposal.remark("choose", str(path), f"the state of BaRT cannot be read: {error.strerror}")
            return None

    def _slurm_state(self, block: Block) -> None:
        """Read the end of BaRT's last call of sacct, in local time."""
        value = self._state_of(block)
        if value is None:
            return
        try:
            at = datetime.fromisoformat(value)
            if at.tzinfo is None:
                if not self._zone:
                    text = f"{value} is local time: it is taken as UTC; give --timezone, such as Europe/Oslo"
                    self.proposal.remark("choose", "BaRT's slurm.state", text)
                at = at.replace(tzinfo=ZoneInfo(self._zone or "UTC"))
        except (ValueError, ZoneInfoNotFoundError) as error:
            raise UsageError(
                f"BaRT's state {value!r}, or the time zone {self._zone!r}, cannot be read: {error}"
            ) from error
        self._marks.append(int(at.timestamp()))

    def _torque_state(self, block: Block, logs: Path) -> None:
        """Read `JOBID YYYYMMDD`: the last job that was read, and its file. The end of the job is the mark."""
        value = self._state_of(block)
        if value is None:
            return
        job, _, day = value.partition(" ")
        file = logs / day.strip()
        end = _end_of(file, job) if re.fullmatch(r"\d{8}", day.strip()) and job != "-" else None
        if end is None:
            text = f"the end of job {job} is not found in {file}: set `delivered_until` to it"
            self.proposal.remark("choose", "BaRT's torque.state", text)
            return
        self._marks.append(end)


def _end_of(file: Path, job: str) -> int | None:
    """The end of the last run of a job in a TORQUE log, epoch seconds; None if there is none, or it cannot be read."""
    job_ended = _JOB_ENDED + job.encode() + b";"
    end_time: int | None = None
    try:
        with file.open("rb") as lines:
            while line := lines.readline(2**20):
                if job_ended in line and (end := _END.search(line)) is not None:
                    end_time = int(end[1])
    except OSError:
        return None
    return end_time
