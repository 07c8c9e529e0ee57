"""What `reconcile --json` prints of each kind of target with each kind of evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki
from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE, SOURCE, Inside
from tests.publisher.cli.test_exit_codes import sgas

DIRECTORIES: Final = ("ogf-ur", "emi-car", "apel-job", "apel-summary", "apel-normalised-summary", "utilization")
MONTHS: Final = ("--since", "2026-09-01", "--until", "2026-12-01")
AMS: Final = """
[targets.ams]
type = "ams"
records = "apel-job"
attempts = 1
url = "{ams}"
auth_url = "{token}"
credentials.certificate = "{pki.client.certificate}"
credentials.key = "{pki.client.key}"
credentials.ca_file = "{pki.ca_file}"
"""
FILES: Final[dict[str, dict[str, str]]] = {
    "ogf-ur": {"records": "record_id,end,wall_s,cpu_s\nx,2026-11-02,1,1\n", "names": "record_id\nx\n"},
    "emi-car": {
        "jobs": "Site,LocalJobId,EndTime,VO,WallDuration\nEXAMPLE-SITE,1,2026-11-02,x,1\n",
        "groups": "month,jobs\n2026-11,1\n",
    },
    "apel-summary": {
        "groups": "month,vo,jobs,wall_hours,cpu_hours\n2026-11,atlas,1,2.5,1.5\n",
        "numbers": "month,jobs\n2026-11,1\n",
        "sync": "Site,SubmitHost,NumberOfJobs,Month,Year\nEXAMPLE-SITE,x,3,11,2026\n",
    },
}
"""Files of what a service has, for targets by the format that they are sent."""


def reconcile_answers(folder: Path, pki: Pki, fixtures: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each answer with what it is of."""
    with Simulator(pki) as simulator:
        targets = [
            f'[targets.{name}]\ntype = "directory"\nlayout = "files"\npath = "{name}"\nrecords = "{name}"\n'
            for name in DIRECTORIES
        ]
        targets += [
            '[targets.https]\ntype = "https"\nrecords = "utilization"\nattempts = 1\nurl = "https://127.0.0.1:1/x"\n',
            AMS.format(ams=simulator.ams_url, token=simulator.token_url, pki=pki),
        ]
        site = Inside(folder, BASE + SOURCE + sgas(simulator) + "\n" + "\n".join(targets))
        load(fixtures / "arc" / "accounting.sql", site.folder / "accounting.db")
        yield "a new store", site("--json", "collect") and site("--json", "reconcile", "ogf-ur").object
        site("run")
        yield "all targets", site("--json", "reconcile", *MONTHS).object
        yield "sums of all", site("--json", "reconcile", "ogf-ur", *MONTHS, "--source").object
        yield "sums", site("--json", "reconcile", *MONTHS, "--source", "--by", "vo").object
        simulator.sgas.forget(list(simulator.sgas.holdings())[:3])
        yield "missing at SGAS", site("--json", "reconcile", "sgas", *MONTHS).object
        simulator.faults.replace([Fault("status", code=500, service="query")])
        yield "no evidence", site("--json", "reconcile", "sgas", *MONTHS).object
        simulator.faults.replace([])
        yield "sent again", site("--json", "reconcile", "sgas", *MONTHS, "--resend", "--yes").object
        for name, files in FILES.items():
            for kind, text in files.items():
                file = site.folder / f"{kind}.csv"
                file.write_text(text)
                yield f"{name}: {kind}", site("--json", "reconcile", name, "--file", file, *MONTHS).object
        yield "taken over", site("--json", "reconcile", "emi-car", "--take-over").object
