"""After moving from BaRT the union at SGAS has every job once: what its archive holds, and what we send.

BaRT's spelling, as its logger writes it for such logs: record id and GlobalJobId `HOST:JOBID`, LocalJobId as in the
log, with the name of the server (an id without gets the host's), MachineName the configured host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from formats.text import date_time
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.publisher.cli.program import Inside
from tests.publisher.reconcile.reconciled_site import asked
from tests.publisher.torque_cluster import torque_line

HOST: Final = "cluster.example.org"
OCTOBER: Final = 1_790_812_800
IDS: Final = ("{}.batch.example.org", "{}[1].batch.example.org", "{}[2].batch.example.org", "{}")
CONF: Final = """
[common]
hostname={host}
logdir={folder}/records
statedir={folder}/state
x509_user_key={key}
x509_user_cert={certificate}
x509_cert_dir={authorities}
[logger]
log_all={url}
[torque]
spooldir={folder}/torque
"""
RECORD: Final = (
    '<?xml version="1.0" encoding="UTF-8" ?>\n<ur:JobUsageRecord xmlns:ur="http://schema.ogf.org/urf/2003/09/urf">'
    '<ur:RecordIdentity ur:recordId="{host}:{id}" ur:createTime="2026-10-09T00:00:00Z" /><ur:JobIdentity>'
    "<ur:GlobalJobId>{host}:{id}</ur:GlobalJobId><ur:LocalJobId>{id}</ur:LocalJobId></ur:JobIdentity>"
    "<ur:UserIdentity><ur:LocalUserId>ada</ur:LocalUserId></ur:UserIdentity><ur:MachineName>{host}</ur:MachineName>"
    "<ur:Queue>main</ur:Queue><ur:EndTime>{end}</ur:EndTime><ur:WallDuration>PT100.000000S</ur:WallDuration>"
    "<ur:CpuDuration>PT50.000000S</ur:CpuDuration><ur:Processors>1</ur:Processors></ur:JobUsageRecord>"
)


def _jobs(first: int, count: int) -> dict[tuple[str, int], str]:
    """Lines of the log by what distinguishes their jobs: the id without the server, and the end."""
    found = {}
    for number in range(first, first + count):
        name, end = IDS[number % len(IDS)].format(number), OCTOBER + number * 3_600
        line = torque_line(0, end).replace(";0.server;", f";{name};").replace("wn1/0", "wn1/0 Resource_List.ncpus=1")
        found[name.partition(".")[0], end] = line
    return found


class BartCluster:
    """A cluster whose jobs BaRT published up to a point."""

    def __init__(self, folder: Path, simulator: Simulator) -> None:
        self.folder = folder
        self.simulator = simulator
        self.jobs: dict[tuple[str, int], str] = {}
        self.archive: list[tuple[str, int]] = []
        self._of_bart: set[str] = set()
        for name in ("torque/server_priv/accounting", "records/urs", "archive", "state"):
            (folder / name).mkdir(parents=True)
        pki = simulator.pki
        text = CONF.format(
            host=HOST,
            folder=folder,
            key=pki.client.key,
            certificate=pki.client.certificate,
            authorities=pki.ca_directory,
            url=simulator.sgas_url,
        )
        (folder / "bart.conf").write_text(text)
        self.program = Inside(folder, "")

    def log(self, jobs: dict[tuple[str, int], str]) -> None:
        """Jobs end."""
        self.jobs |= jobs
        with (self.folder / "torque/server_priv/accounting/20261001").open("a") as file:
            file.writelines(jobs.values())

    def bart_posts(self, jobs: dict[tuple[str, int], str], host: str = HOST) -> None:
        """The logger reads them, and the registrant posts and archives them."""
        for (number, end), line in jobs.items():
            name = line.split(";")[2]
            name = f"{name}.{host}" if name.isdigit() else name
            text = RECORD.format(host=host, id=name, end=date_time(end))
            asked(self.simulator, self.simulator.pki, "POST", "/sgas/ur", text.encode())
            self._of_bart.add(f"{host}:{name}")
            (self.folder / "archive" / f"{number}-{end}").write_text(text)
            self.archive.append((number, end))

    def move(self) -> None:
        """As the page has it."""
        self.program(
            "import", "sgas-bart", "bart.conf", "--site", "EXAMPLE-SITE", "--timezone", "UTC", "--output", "new.toml"
        ).ok()
        text = (
            (self.folder / "new.toml")
            .read_text()
            .replace("sqlite:////var/lib/usage-publisher", f"sqlite:///{self.folder}")
        )
        shadow = re.sub(r"^(\[sources\.torque\])", r'\1\ntimezone = "UTC"', text, flags=re.MULTILINE)
        self.program.configure(re.sub(r"^(\[targets\..*)", r"\1\nshadow = true", shadow, flags=re.MULTILINE))
        self.program("run")
        self.program("shadow", "localhost", "--take-over", "--against", "archive")
        self.program.configure(shadow)
        self.program("run").ok()

    def at_sgas(self) -> Counter[tuple[str, int]]:
        """How many records SGAS has of each job: BaRT's and ours have different ids."""
        query = "SELECT local_id, end_time FROM runs WHERE record_id = ?"
        ours = [self.program.rows(query, str(record))[0] for record in self.ours()]
        return Counter([*self.archive, *((str(number), int(end)) for number, end in ours)])

    def ours(self) -> list[str]:
        """The ids of the records that SGAS has from here."""
        return [record for record in self.simulator.sgas.holdings() if record not in self._of_bart]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("bart"))


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def test_every_job_is_at_sgas_once(tmp_path: Path, simulator: Simulator) -> None:
    cluster = BartCluster(tmp_path, simulator)
    cluster.log(_jobs(1, 20))
    cluster.bart_posts(_jobs(1, 15))
    cluster.move()
    assert cluster.at_sgas() == Counter(dict.fromkeys(cluster.jobs, 1))
    assert len(cluster.ours()) == 5
    cluster.log(_jobs(30, 4))
    cluster.program("run").ok()
    assert cluster.at_sgas() == Counter(dict.fromkeys(cluster.jobs, 1))


def test_the_machine_is_that_of_bart(tmp_path: Path, simulator: Simulator) -> None:
    cluster = BartCluster(tmp_path, simulator)
    cluster.log(_jobs(1, 5))
    cluster.move()
    assert {row.record.machine for row in simulator.sgas._rows.values()} == {HOST}


def test_a_job_of_the_same_number_and_end_on_another_machine_is_not_taken_for_it(
    tmp_path: Path, simulator: Simulator
) -> None:
    cluster = BartCluster(tmp_path, simulator)
    cluster.log(_jobs(1, 5))
    cluster.bart_posts(_jobs(1, 5), "other.example.org")
    cluster.move()
    assert len(cluster.ours()) == 5
