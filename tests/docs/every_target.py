"""A site with every kind of target, each with every format that it takes, in every state that a record can be in.

Services that the simulator does not have are doubles; they fail until they are `repaired`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from formats.registry import FORMATS
from publisher.config.target_registry import TARGET_KINDS
from publisher.simulator.faults import Fault
from publisher.simulator.pki import make_pki
from publisher.simulator.simulator import Simulator
from publisher.testing import HttpDouble, HttpRequest
from publisher.testing.jobs import NOW
from tests.generators.arc_database import load
from tests.publisher.auditor import AuditorDouble
from tests.publisher.cli.program import BASE, SOURCE, Inside
from tests.publisher.waldur import OFFERING, WaldurDouble

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
[energy]
pue = 1.2
carbon_g_per_kwh = 250
[[energy.power]]
watts_core = 4
[[allocations]]
name = "year"
project = "physics"
resource = "cores"
amount = 1000
since = "2026-01-01"
until = "2027-01-01"
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


class _TakingDouble(HttpDouble):
    """A service that takes every message."""

    def answer(self, _request: HttpRequest) -> tuple[int, str]:
        """It keeps nothing."""
        return 200, "stored"


class Services:
    """The services of the site: the simulator, with a topic for each format, and doubles."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.https, self.auditor = _TakingDouble(), AuditorDouble()
        self.waldur = WaldurDouble("atlas", "cms")
        self.waldur.now = lambda: NOW
        for double in (self.https, self.auditor, self.waldur):
            double.fault = lambda _method, _path: "503"

    def repaired(self) -> None:
        """Let the doubles do what they are asked from now on."""
        for double in (self.https, self.auditor, self.waldur):
            double.fault = lambda _method, _path: ""


@contextmanager
def services(folder: Path) -> Iterator[Services]:
    """The services, as long as the `with` statement lasts."""
    topics = dict.fromkeys(FORMATS, ("apel",))
    with Simulator(make_pki(folder), faults=[Fault("status", texts=(REFUSED,))], topics=topics) as simulator:
        running = Services(simulator)
        with running.https.running(), running.auditor.running(), running.waldur.running():
            yield running


def targets(running: Services) -> dict[str, str]:
    """The tables of the targets by their names, which end in the format."""
    simulator = running.simulator
    tables = {
        "sgas": f'type = "sgas"\nurl = "{simulator.sgas_url}"\nattempts = 1\nbatch_records = 10\n',
        "ams": f'type = "ams"\nurl = "{simulator.ams_url}"\nauth_url = "{simulator.token_url}"\n'
        'project = "accounting"\ntopic = "{}"\nattempts = 1\n',
        "https": f'type = "https"\nurl = "{running.https.url}/usage"\nattempts = 1\n',
        "auditor": f'type = "auditor"\nurl = "{running.auditor.url}"\nattempts = 1\n',
        "waldur": f'type = "waldur"\nurl = "{running.waldur.url}"\nattempts = 1\noffering = "{OFFERING}"\n'
        'by = "vo"\ncredentials.token_file = "staff.token"\n',
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


def site(folder: Path, running: Services, fixtures: Path) -> Inside:
    """The site; nothing was collected."""
    tables = "".join(f"[targets.{name}]\n{table}" for name, table in targets(running).items())
    pki = running.simulator.pki
    credentials = f'certificate = "{pki.client.certificate}"\nkey = "{pki.client.key}"\nca_file = "{pki.ca_file}"\n'
    made = Inside(folder, f"{BASE}{SOURCE}{_MORE}{tables}[credentials]\n{credentials}")
    token = made.folder / "staff.token"
    token.write_text("staff")
    token.chmod(0o600)
    load(fixtures / "arc" / "accounting.sql", made.folder / "accounting.db")
    first = (fixtures / "torque" / "accounting" / "20261024").read_text(encoding="latin-1").splitlines()[0]
    (made.folder / "torque.log").write_text(f"{first}\nno record\n")
    return made
