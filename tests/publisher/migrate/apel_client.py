"""A site that the APEL client accounted for: its logs, what the client sent of them, and what APEL holds in the end.

What the client sends is known from running it on the same logs (fixtures/moving/apel-client): tables of values.
"""

from __future__ import annotations

import csv
import importlib.util
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from formats.apel.text import parse
from formats.rules import type_of
from formats.score import read_score
from formats.text import read_date_time
from publisher.simulator.apel_tables import Table, Tables, read_car
from tests.publisher.cli.program import Done, Inside

SYSTEMS: Final = {
    "torque": "PBS",
    "pbs": "PBS",
    "gridengine": "SGE",
    "slurm": "SLURM",
    "lsf": "LSF",
    "htcondor": "HTCondor",
}
"""The folders of the fixtures, and the type of each in parser.cfg."""

_CLIENT: Final = """\
[spec_updater]
enabled = false
site_name = EXAMPLE-SITE
lrms_server = lrms.example.org
manual_spec1 = ce1.example.org:9619/ce1.example.org-condor,HEPscore23,14.2
spec_type = HEPscore23
spec_value = 14.2
[joiner]
enabled = true
local_jobs = {local}
[unloader]
enabled = true
dir_location = {folder}
send_summaries = {summaries}
send_ur = {car}
dict_benchmark_type = true
withhold_dns = false
interval = latest
[ssm]
enabled = true
"""
_PARSER: Final = """\
[site_info]
site_name = EXAMPLE-SITE
lrms_server = lrms.example.org
[blah]
enabled = true
dir = {folder}
filename_prefix = blahp.log
[batch]
enabled = true
type = {type}
parallel = {parallel}
dir = {folder}/batch
filename_prefix =
"""


class ClientSite(Inside):
    """A site in a folder, imported from the client's configuration: one batch system, one target, a shadow."""

    def __init__(self, fixtures: Path, folder: Path, system: str, **options: Any) -> None:
        """`options`: `records` ("apel-summary", "apel-job", or "emi-car"), `local`, `parallel` of the client."""
        folder.mkdir()
        super().__init__(folder, "")
        self.system = system
        self.logs = fixtures / "moving" / "apel-client" / system
        self.local = bool(options.get("local", True))
        shutil.copytree(self.logs, folder, dirs_exist_ok=True)
        records = options.get("records", "apel-summary")
        words = {
            "folder": folder, "type": SYSTEMS[system], "local": self.local, "parallel": options.get("parallel", True),
            "summaries": records == "apel-summary", "car": records == "emi-car",
        }  # fmt: skip
        (folder / "client.cfg").write_text(_CLIENT.format(**words))
        (folder / "parser.cfg").write_text(_PARSER.format(**words))
        self.config.unlink()
        self("import", "apel", "client.cfg", "parser.cfg", "--output", self.config).ok()
        text = self.config.read_text().replace("/var/lib/usage-publisher", str(folder))
        source = 'timezone = "UTC"\ncomplete_since = "2026-10-01"\n'
        text = re.sub(r"^\[sources\.lrms\]\n", lambda found: found[0] + source, text, flags=re.MULTILINE)
        if system == "pbs":
            text = text.replace('type = "torque"', 'type = "pbs"')
        if system == "slurm":  # what the client reads has no CPU time that was used
            text = text.replace(f"{folder}/batch", f"{folder}/sacct.psv")
        self.configure(text)
        self.set(shadow="true")

    def set(self, **settings: str | None) -> None:
        """Change settings of the target; None removes one."""
        text = self.config.read_text()
        for name, value in settings.items():
            text = re.sub(rf"^{name} = .*\n", "", text, flags=re.MULTILINE)
            if value is not None:
                text = text.replace("[targets.apel]\n", f"[targets.apel]\n{name} = {value}\n")
        self.configure(text)

    def shadow(self, *arguments: str | Path) -> Done:
        """Compare with what the client sent."""
        return self("shadow", "apel", "--json", *arguments)

    def take_over(self, *exports: Path) -> None:
        """Count what the client sent as delivered."""
        against = [word for export in exports for word in ("--against", export)]
        assert self.shadow(*against, "--take-over").code in {0, 3}, "3 where something else differs"

    def go(self) -> None:
        """Be no shadow any more, and send."""
        self.set(shadow=None)
        self("run").ok()

    @property
    def ours(self) -> list[bytes]:
        """What was sent from here, oldest first."""
        return [path.read_bytes() for path in sorted((self.folder / "outgoing").glob("*/*")) if path.is_file()]

    # --- the client's

    def export(self, table: str, **only: str) -> Path:
        """An export of the client's database, of rows that have these values alone."""
        rows = [row for row in self.client_rows(table) if all(row[name] == value for name, value in only.items())]
        path = self.folder / f"export-of-{table}"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        return path

    def client_rows(self, table: str) -> list[dict[str, str]]:
        """The rows that the client sends; without local jobs those of the grid alone."""
        with (self.logs / table).open() as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        if self.local:
            return rows
        local = {job_name(job) for job in jobs_of() if job.fqan is None}
        return [
            row
            for row in rows
            if row.get("InfrastructureType") != "local"
            and row.get("SubmitHost") != "None"
            and ("LocalJobId" not in row or number_of(row["LocalJobId"]) not in local)
        ]


def fixture_jobs() -> Any:
    """The module that wrote the logs."""
    path = Path(__file__).parents[3] / "fixtures" / "moving" / "apel-client" / "make_fixtures.py"
    spec = importlib.util.spec_from_file_location("apel_client_fixtures", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def jobs_of() -> Iterable[Any]:
    """The jobs that the logs are of."""
    return fixture_jobs().JOBS  # type: ignore[no-any-return]


def job_name(job: Any) -> str:
    """The number of a job, as text."""
    return str(job.number)


def end_of(job: Any) -> int:
    """The end of a job of the logs."""
    return int(fixture_jobs().T0 + job.start + job.wall)


def number_of(local_id: str) -> str:
    """The number of a job in any spelling of its id."""
    found = re.search(r"(?:.*#)?(\d+)(?:\D.*)?$", local_id.partition("#")[2].partition("#")[0] or local_id)
    assert found is not None
    return found[1].partition(".")[0]


class Apel:
    """What the APEL server holds: REPLACE INTO by its keys (facts on formats, 4.8)."""

    def __init__(self) -> None:
        self._tables = Tables()

    def take(self, messages: Iterable[bytes]) -> Apel:
        """Load messages, in their order."""
        for payload in messages:
            for table, fields in _records(payload):
                self._tables.replace(table, fields, "a site")
        return self

    def take_client(self, table: Table, rows: Iterable[dict[str, str]]) -> Apel:
        """Load what the client sent."""
        for row in rows:
            fields = {name: value for name, value in row.items() if name != "UpdateTime"}
            if "EndTime" in fields:
                fields["EndTime"] = str(read_date_time(fields["EndTime"].replace(" ", "T")))
            self._tables.replace(table, _defaulted(fields), "a site")
        return self

    @property
    def summarised(self) -> dict[tuple[str, str], int]:
        """Jobs by month and SubmitHost, as the summaries have them; without those of none."""
        found = Counter[tuple[str, str]]()
        for row in self._tables.rows["summaries"].values():
            found[row.fields["Month"], row.fields["SubmitHost"]] += int(row.fields["NumberOfJobs"])
        return {key: jobs for key, jobs in found.items() if jobs}

    @property
    def synced(self) -> dict[tuple[str, str], int]:
        """The same as the sync counts have it."""
        rows = self._tables.rows["sync"].values()
        found = {(row.fields["Month"], row.fields["SubmitHost"]): int(row.fields["NumberOfJobs"]) for row in rows}
        return {key: jobs for key, jobs in found.items() if jobs}

    @property
    def jobs(self) -> Counter[tuple[str, int]]:
        """How many job records there are of each number and end."""
        rows = self._tables.rows["jobs"].values()
        return Counter((number_of(row.fields["LocalJobId"]), int(row.fields["EndTime"])) for row in rows)


def _records(payload: bytes) -> Iterator[tuple[Table, dict[str, str]]]:
    if payload.startswith(b"<"):
        for fields in read_car(payload, 1 << 31):
            end = fields["EndTime"]
            yield "jobs", fields | {"EndTime": end if end.isdigit() else str(read_date_time(end))}
        return
    message = parse(payload.decode("ascii"))
    kind = type_of(message.header, message.kind, message.version)
    assert kind is not None
    tables: dict[str, Table] = {"apel-job": "jobs", "apel-summary": "summaries", "apel-sync": "sync"}
    for record in message.records:
        yield tables[kind.name], _defaulted(dict(record.fields))


def _defaulted(fields: dict[str, str]) -> dict[str, str]:
    names = ("SubmitHost", "GlobalUserName", "VO", "VOGroup", "VORole")
    fields = dict.fromkeys(names, "None") | {name: value for name, value in fields.items() if value}
    score = read_score(fields.get("ServiceLevel"), fields.get("ServiceLevelType"))
    if score is not None:
        fields["ServiceLevelType"], fields["ServiceLevel"] = score[0], f"{score[1]:.3f}"
    return fields
