"""The doubles of our own services, as the suites of `publisher.testing` take them."""

from __future__ import annotations

import csv
import math
import os
import random
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from formats.apel.summary import read_group
from formats.apel.text import parse
from formats.calendar import Month
from formats.view import View
from formats.waldur.fold import ResourceMonth
from formats.waldur.usage import AccountReport
from formats.xdmod.slurm import FIELDS, record_id_of
from formats.xml.pieces import pieces
from publisher.plugins import record_format
from publisher.simulator import Fault, Simulator
from publisher.simulator.apel import _read_text
from publisher.simulator.apel_tables import read_car
from publisher.simulator.sgas_records import read
from publisher.simulator.sgas_rows import UsageRecord, usage_record
from publisher.testing import HttpDouble, HttpRequest
from publisher.testing.jobs import NOW, make_job
from publisher.testing.services import in_turn
from tests.publisher.waldur import WaldurDouble, settings_of

_CREATED = re.compile(rb'createTime="[^"]*"|urf:createTime="[^"]*"')
_EXPORTED = [
    re.compile(rb"<EndTime[^>]*>([^<]+)<"), re.compile(rb"<WallDuration[^>]*>PT(\d+)S<"),
    re.compile(rb"<CpuDuration[^>]*>PT(\d+)S<"),
]  # fmt: skip
_CPU = re.compile(rb"(<CpuDuration[^>]*>PT)(\d+)(S<)")


def undated(body: bytes) -> bytes:
    """A record without createTime: of one version that was sent twice, any is right."""
    return _CREATED.sub(b"", body)


class _Simulated:
    """One service of the simulator."""

    def __init__(self, simulator: Simulator, service: str, refusal: int) -> None:
        self.simulator = simulator
        self._service: Any = service
        self._refusal = refusal
        simulator.faults.replace([])
        simulator.sgas.reset()
        simulator.apel.reset()
        pki = simulator.pki
        self._credentials = {
            "certificate": str(pki.client.certificate), "key": str(pki.client.key),
            "ca_directory": str(pki.ca_directory),
        }  # fmt: skip

    def fail(self, faults: Sequence[str]) -> None:
        """As `publisher.testing.Fails`. A fault is passed over by those requests that an earlier one got."""
        made: list[Fault] = []
        skipped = 0
        for fault in faults:
            if not fault:
                skipped += 1
            elif fault.isdigit():
                made.append(Fault("status", code=int(fault), service=self._service, skip=skipped, count=1))
            else:
                stored = fault == "stored"
                made.append(Fault("reset", stored=stored, service=self._service, skip=skipped, count=1))
        self.simulator.faults.replace(made)

    def refuse(self, texts: Collection[str]) -> None:
        """As `publisher.testing.Refuses`."""
        refusal = [Fault("status", code=self._refusal, service=self._service, texts=tuple(texts))] if texts else []
        self.simulator.faults.replace(refusal)


class SgasDouble(_Simulated):
    """The simulator's SGAS."""

    def __init__(self, simulator: Simulator) -> None:
        super().__init__(simulator, "sgas", 500)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        return {"type": "sgas", "url": self.simulator.sgas_url, "credentials": self._credentials}

    def content(self) -> Iterable[tuple[str, Any]]:
        """Its records."""
        return [(record.record_id, _undated_row(record)) for record in self.simulator.sgas.records()]

    def alter(self, key: str) -> None:
        """Change the wall time of a record."""
        row = self.simulator.sgas._rows[key]
        record = msgspec.structs.replace(row.record, wall="PT1000H")
        self.simulator.sgas._rows[key] = msgspec.structs.replace(row, record=record)

    def remove(self, key: str) -> None:
        """Remove a record."""
        self.simulator.sgas.forget([key])


def sgas_row(body: bytes) -> UsageRecord:
    """A usage record as SGAS stores it, without createTime."""
    (values,) = read(record_format("ogf-ur", View(site="x")).message([body]))
    return _undated_row(usage_record(values))


def _undated_row(record: UsageRecord) -> UsageRecord:
    return msgspec.structs.replace(record, create_time="")


class ApelDouble(_Simulated):
    """The simulator's AMS, with APEL's server after it, and a portal that exports its rows into a file."""

    def __init__(self, simulator: Simulator, folder: Path) -> None:
        super().__init__(simulator, "publish", 400)
        self._file = folder / "portal.csv"
        self._altered: dict[str, Mapping[str, str] | None] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        urls = {"url": self.simulator.ams_url, "auth_url": self.simulator.token_url, "evidence": str(self._file)}
        return {"type": "ams", **urls, "records": "apel-summary", "credentials": self._credentials}

    def content(self) -> Iterable[tuple[str, Any]]:
        """Its summaries that have jobs."""
        return ((key, group_of(fields)) for key, fields in self._rows().items())

    def export(self) -> None:
        """As `publisher.testing.Exports`."""
        rows = [fields for fields in (self._rows() | self._altered).values() if fields is not None]
        with self._file.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0] if rows else ["NumberOfJobs"], extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)

    def alter(self, key: str) -> None:
        """Change a CPU time in what is exported."""
        fields = self._rows()[key]
        self._altered[key] = {**fields, "CpuDuration": str(int(fields["CpuDuration"]) + 3_600)}

    def remove(self, key: str) -> None:
        """Leave a row out of what is exported."""
        self._altered[key] = None

    def _rows(self) -> dict[str, Mapping[str, str]]:
        held = self.simulator.apel.holdings()
        assert held.rejected == ()
        groups = ((group_of(row.fields), row.fields) for row in held.summaries.values())
        return {group.key.text: fields for group, fields in groups if group.jobs}


class ApelJobsDouble(ApelDouble):
    """The same with a record for each job, in a format of records."""

    def __init__(self, simulator: Simulator, folder: Path, records: str) -> None:
        super().__init__(simulator, folder)
        self._records = records

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        return {**super().settings, "records": self._records, "sync": False, "local_jobs": "send"}

    def content(self) -> Iterable[tuple[str, Any]]:
        """Its records, by the record ids of the runs, which only CAR has."""
        return self._rows().items()

    def _rows(self) -> dict[str, Mapping[str, str]]:
        held = self.simulator.apel.holdings()
        assert held.rejected == ()
        return {make_job(int(row.fields["LocalJobId"])).record_id: row.fields for row in held.jobs.values()}


def apel_job(body: bytes, records: str) -> Mapping[str, str]:
    """A record of a job as written, as APEL has it."""
    message = record_format(records, View(site="x")).message([body])
    if message.startswith(b"<"):
        (fields,) = read_car(message, math.inf)
    else:
        _table, (fields,) = _read_text(message.decode(), NOW)
    return fields


def group_of(fields: Mapping[str, str]) -> Any:
    """A summary by its fields."""
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    return summary(text.encode())


def summary(body: bytes) -> Any:
    """A summary as written."""
    (record,) = parse(f"APEL-summary-message: v0.4\n{body.decode()}\n%%\n").records
    return read_group(record)


class HttpsDouble(HttpDouble):
    """A service that replaces usage records by their ids."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, bytes] = {}

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        return {"type": "https", "url": f"{self.url}/usage", "records": "ogf-ur"}

    def content(self) -> Iterable[tuple[str, Any]]:
        """Its records."""
        return self.rows.items()

    def answer(self, request: HttpRequest) -> tuple[int, str]:
        """It stores all records of a message."""
        self.rows |= {each.record_id: undated(each.body) for each in pieces(request.body)}
        return 200, "stored"


class ExportingDouble(HttpsDouble):
    """The same with a portal that exports its records into a file."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "portal.csv"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        return {**super().settings, "evidence": str(self._file)}

    def export(self) -> None:
        """As `publisher.testing.Exports`."""
        lines = ["record_id,end,wall_s,cpu_s"]
        for key, body in self.rows.items():
            found = [each[1].decode() if (each := pattern.search(body)) else "" for pattern in _EXPORTED]
            lines.append(",".join([key, *found]))
        self._file.write_text("\n".join(lines), encoding="utf-8")

    def alter(self, key: str) -> None:
        """Change the CPU time of a record."""
        self.rows[key] = _CPU.sub(lambda cpu: cpu[1] + str(int(cpu[2]) + 10).encode() + cpu[3], self.rows[key])

    def remove(self, key: str) -> None:
        """Remove a record."""
        del self.rows[key]


class FolderDouble:
    """A folder of plain files, of which the last record with an id counts."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.path = path
        self._settings = settings

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target."""
        return {"type": "directory", "path": str(self.path), **self._settings}

    def files(self) -> list[Path]:
        """The files, oldest first."""
        found = self.path.iterdir() if self.path.exists() else ()
        return sorted((each for each in found if each.is_file()), key=lambda each: each.stat().st_mtime_ns)

    def content(self) -> Iterable[tuple[str, Any]]:
        """The records that count."""
        rows: dict[str, bytes] = {}
        for file in self.files():
            rows |= {each.record_id: undated(each.body) for each in pieces(file.read_bytes())}
        return rows.items()

    def alter(self, key: str) -> None:
        """Change the CPU time of a record in its file."""
        self._rewrite(key, lambda body: _CPU.sub(lambda cpu: cpu[1] + str(int(cpu[2]) + 10).encode() + cpu[3], body))

    def remove(self, key: str) -> None:
        """Remove a record from its file."""
        self._rewrite(key, lambda _body: b"")

    def _records(self, content: bytes) -> list[tuple[str, bytes]]:
        return [(each.record_id, each.body) for each in pieces(content)]

    def _message(self, bodies: Sequence[bytes]) -> bytes:
        return record_format("ogf-ur", View(site="x")).message(bodies)

    def _rewrite(self, key: str, change: Any) -> None:
        for file in self.files():
            records = self._records(file.read_bytes())
            if any(name == key for name, _ in records):
                times = file.stat()
                changed = [change(body) if name == key else body for name, body in records]
                file.write_bytes(self._message([body for body in changed if body]))
                os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))


class QueueDouble(FolderDouble):
    """An outgoing queue of SSM, in which each message has a file in a folder of the queue."""

    def files(self) -> list[Path]:
        """The messages, oldest first."""
        found = self.path.rglob("*") if self.path.exists() else ()
        return sorted((each for each in found if each.is_file()), key=lambda each: each.stat().st_mtime_ns)


def _with_another_core(line: bytes) -> bytes:
    fields = line.split(b"|")
    cores = FIELDS.index("NCPUS")
    return b"|".join([*fields[:cores], str(int(fields[cores]) + 1).encode(), *fields[cores + 1 :]])


class DailyDouble(FolderDouble):
    """A folder with files of whole days for Open XDMoD, in which each line counts."""

    def content(self) -> Iterable[tuple[str, Any]]:
        """The lines of all files."""
        return [pair for file in self.files() for pair in self._records(file.read_bytes())]

    def alter(self, key: str) -> None:
        """Change the cores of a run."""
        self._rewrite(key, _with_another_core)

    def _records(self, content: bytes) -> list[tuple[str, bytes]]:
        return [(record_id_of(line), line + b"\n") for line in content.splitlines()]

    def _message(self, bodies: Sequence[bytes]) -> bytes:
        return b"".join(bodies)


_Value = tuple[str, str, Month, str]
"""Account, component, month, and user (empty: of all users)."""
Amounts = Mapping[tuple[str, str], Decimal]
"""By component and user (empty: of all users), without zeros."""


class WaldurService(WaldurDouble):
    """The double of Waldur, with three accounts. Its content are accounts by month, with their `Amounts`."""

    def __init__(self, folder: Path) -> None:
        super().__init__("physics", "bio&x")
        self._folder = folder

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target: of each run any amount is more than a hundredth, and the last is never zero."""
        components = {"cpu_k_hours": {"amount": "core-hours", "divisor": "0.007"}, "gpu_hours": {"amount": "jobs"}}
        return settings_of(self, self._folder, components=components, batch_records=1)

    def content(self) -> Iterable[tuple[str, Amounts]]:
        """What it has, by account and month."""
        months = {Month(int(day[:4]), int(day[5:7])) for _, _, day in self.rows}
        for month in sorted(months):
            accounts: dict[str, dict[tuple[str, str], Decimal]] = {}
            for (account, component, user), usage in self.amounts(month).items():
                accounts.setdefault(account, {})[component, user] = usage
            for account, usages in accounts.items():
                yield ResourceMonth(month.year, month.month, account).text, usages

    def fail(self, faults: Sequence[str]) -> None:
        """As `publisher.testing.Fails`. With 403 among them an account is closed meanwhile; instead of 503 comes the
        page of a proxy."""
        self.resources["physics"]["state"] = "Terminated" if "403" in faults else "OK"
        self.fault = in_turn(["<p>log in</p>" if fault == "503" else fault for fault in faults])

    def alter(self, key: str) -> None:
        """Change what one user of an account has."""
        self._write(key, lambda usage: usage + Decimal("0.01"), most=1)

    def remove(self, key: str) -> None:
        """Set all usages of an account to zero."""
        self._write(key, lambda _usage: Decimal(0))

    def _write(self, key: str, change: Callable[[Decimal], Decimal], most: int | None = None) -> None:
        """Change these amounts of an account, or so many of them, users first."""
        year, number, account = msgspec.json.decode(key, type=tuple[int, int, str])
        month = Month(year, number)
        its = sorted(((user, component, usage) for (owner, component, user), usage in self.amounts(month).items()
                      if owner == account), reverse=True)  # fmt: skip
        for user, component, usage in its[:most]:
            self.write(account, component, month, str(change(usage)), user)


class TroubledWaldur(WaldurService):
    """The same in a history: between faults its limits and tokens change, it is an older server, and another program
    writes values, which are put back when that is stopped."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder)
        self._chance = random.Random(seed)
        self._overwritten: dict[_Value, tuple[Decimal, Decimal]] = {}
        self._replaces = self._chance.random() < 0.3

    @property
    def settings(self) -> Mapping[str, Any]:
        """The table of a target, which in some histories replaces what others wrote."""
        return {**super().settings, **({"replaces_until": "2027-01-31"} if self._replaces else {})}

    def fail(self, faults: Sequence[str]) -> None:
        """As `publisher.testing.Fails`: without any fault all is well again."""
        super().fail(faults)
        chance = self._chance
        self.only_providers, self.reads_date, self.limits = False, True, {}
        self._put_back()
        if faults:
            self.only_providers = chance.random() < 0.3
            self.reads_date = chance.random() > 0.2
            self.limits = {"gpu_hours": Decimal(chance.randint(1, 9))} if chance.random() < 0.3 else {}
            if chance.random() < 0.3:
                self._overwrite()

    def _overwrite(self) -> None:
        """Let another program change the value of an account or a user, or add a user."""
        month = self._chance.choice((Month(2026, 10), Month(2026, 11)))
        there = self.amounts(month)
        if not there:
            return
        account, component, user = self._chance.choice(sorted(there))
        user = self._chance.choice((user, "eve"))
        value = Decimal(self._chance.randint(100, 10**6)) / 100
        self._overwritten[account, component, month, user] = value, there.get((account, component, user), Decimal(0))
        self.write(account, component, month, str(value), user)

    def _put_back(self) -> None:
        for (account, component, month, user), (value, before) in self._overwritten.items():
            if self.amounts(month).get((account, component, user)) == value:
                self.write(account, component, month, str(before), user)
        self._overwritten.clear()


def amounts(body: bytes) -> Amounts:
    """What a report says."""
    report = msgspec.json.decode(body, type=AccountReport)
    said = {(each.type, ""): each.amount for each in report.components}
    said |= {(each.type, user.username): user.usage for each in report.components for user in each.users}
    return {name: amount for name, amount in said.items() if amount}
