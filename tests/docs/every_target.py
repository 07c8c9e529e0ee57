"""A site with every kind of target, each with every format that it takes, in every state that a record can be in."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from formats.registry import FORMATS
from publisher.config.target_registry import TARGET_KINDS
from publisher.simulator.faults import Fault
from publisher.simulator.pki import make_pki
from publisher.simulator.simulator import Simulator
from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE, SOURCE, Inside

REFUSED: Final = "ur-ce1.example.org-rLvfjWSagc1E00000039"
"""A record that the simulated SGAS refuses."""
PERSON: Final = "/DC=org/DC=example/C=DK/O=Grid/OU=Dep 2/CN=Ivar Ihle 044"
"""The user of some of the jobs."""
_MORE: Final = """
[sources.torque]
type = "torque"
path = "torque.log"
timezone = "UTC"
complete_since = "2026-09-01"
[[nodes]]
name = "n1"
cores = 4
[[charges.prices]]
resource = "cores"
price = "0.01"
[targets.shadow]
type = "directory"
path = "shadow"
records = "apel-summary"
shadow = true
[spool.copy]
path = "spool"
format = "json-lines"
"""
_OF_APEL: Final = frozenset({"apel-job", "apel-normalised-summary", "apel-summary", "emi-car"})


def simulator(folder: Path) -> Simulator:
    """The services of the site; a topic for each format."""
    topics = dict.fromkeys(FORMATS, ("apel",))
    return Simulator(make_pki(folder), faults=[Fault("status", texts=(REFUSED,))], topics=topics)


def targets(services: Simulator) -> dict[str, str]:
    """The tables of the targets by their names, which end in the format."""
    tables = {
        "sgas": f'type = "sgas"\nurl = "{services.sgas_url}"\nattempts = 1\nbatch_records = 10\n',
        "ams": f'type = "ams"\nurl = "{services.ams_url}"\nauth_url = "{services.token_url}"\n'
        'project = "accounting"\ntopic = "{}"\nattempts = 1\n',
        "https": 'type = "https"\nurl = "https://localhost:1/usage"\nattempts = 1\n',  # where nobody listens
        "auditor": 'type = "auditor"\nurl = "https://localhost:1"\nattempts = 1\n',
        "waldur": f'type = "waldur"\nurl = "https://localhost:1"\nattempts = 1\noffering = "{"0" * 32}"\n',
        "directory": 'type = "directory"\npath = "out-{}"\n',
    }
    formats = {
        "sgas": {"ogf-ur"}, "ams": _OF_APEL, "https": {"ogf-ur", "utilization"},
        "auditor": {"auditor-record"}, "waldur": {"waldur-usage"}, "directory": FORMATS.keys(),
    }  # fmt: skip
    if tables.keys() != TARGET_KINDS.keys():
        raise ValueError("a kind of target is missing")
    return {
        f"{kind}-{records}": table.format(records) + f'records = "{records}"\n' + _layout(kind, records)
        for kind, table in tables.items()
        for records in sorted(formats[kind] - {"apel-sync"})
    }


def _layout(kind: str, records: str) -> str:
    return 'layout = "files"\n' if kind == "directory" and FORMATS[records].file_of is None else ""


def site(folder: Path, services: Simulator, fixtures: Path) -> Inside:
    """The site; nothing was collected."""
    tables = "".join(f"[targets.{name}]\n{table}" for name, table in targets(services).items())
    client = services.pki.client
    credentials = f'certificate = "{client.certificate}"\nkey = "{client.key}"\nca_file = "{services.pki.ca_file}"\n'
    made = Inside(folder, f"{BASE}{SOURCE}{_MORE}{tables}[credentials]\n{credentials}")
    load(fixtures / "arc" / "accounting.sql", made.folder / "accounting.db")
    first = (fixtures / "torque" / "accounting" / "20261024").read_text(encoding="latin-1").splitlines()[0]
    (made.folder / "torque.log").write_text(f"{first}\nno record\n")
    return made
