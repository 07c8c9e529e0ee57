"""The pages about moving over, step by step: every command that they show is run, on a site like the one they speak of.

Paths under /etc and /var are put below a folder of the test; services are the simulator; what starts and stops services
of the host, or asks the client's database, is passed over.
"""

from __future__ import annotations

import re
import shlex
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from formats.apel.text import parse
from formats.calendar import month_of
from formats.text import date_time
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki, make_pki
from tests.conftest import ROOT
from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE, Inside
from tests.publisher.reconcile.reconciled_site import asked
from tests.publisher.waldur import OFFERING, WaldurDouble

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OURS = re.compile(r"(?<![\w.])/(etc|var)/")
PASSED_OVER = ("systemctl", "mariadb")


class Walk:
    """A page walked from its first command to its last."""

    def __init__(self, page: str, folder: Path, simulator: Simulator, pki: Pki) -> None:
        self.text = (ROOT / "docs" / page).read_text(encoding="utf-8")
        self.folder = folder
        self.simulator = simulator
        self.pki = pki
        self.config = folder / "etc" / "usage-publisher" / "publisher.toml"
        self.program = Inside(folder, "")
        self.ran: list[str] = []
        self.said: dict[str, str] = {}

    def steps(self) -> Iterator[str]:
        """The command lines of the page."""
        for block in BLOCK.findall(self.text):
            yield from (line for line in block.splitlines() if line.strip())

    def here(self, text: str) -> str:
        """The text with the paths of the page moved below the folder."""
        return OURS.sub(lambda found: f"{self.folder}/{found[1]}/", text)

    def walk(self, *, until: str = "") -> None:
        """Run the steps that were not run yet; with `until`, up to the first that begins so."""
        for line in list(self.steps())[len(self.ran) :]:
            if until and line.startswith(until):
                return
            self.ran.append(line)
            command, _, comment = line.partition("   #")
            if command.startswith(PASSED_OVER):
                continue
            words = shlex.split(self.here(command))
            if words[0] != "usage-publisher":
                assert words[0] in {"sed", "rm", "cp", "chmod"}, f"the page shows {command!r}, which is not run"
                subprocess.run(words, check=True, cwd=self.folder)
                continue
            allowed = {int(code) for code in re.findall(r"\d", comment)} if "exit code" in comment else {0}
            done = self.program("--config", self.config, *words[1:])
            self.said[line] = done.out + done.err
            assert done.code in allowed, (command, done.code, done.out[-1500:], done.err[-1500:])
            if "--output" in words:
                self.adapt()

    def rendered(self, *arguments: str) -> str:
        """What our program would send, as if another had sent it: nothing after the line with the payloads."""
        return self.program("--config", self.config, "render", arguments[0], "--target", *arguments[1:]).ok().out

    def adapt(self) -> None:
        """What a real site need not change: where the store is, and at which ports the services are."""
        text = self.config.read_text(encoding="utf-8").replace("sqlite:////var", f"sqlite:///{self.folder}/var")
        for service in ("https://sgas.example.org:6143/sgas", "https://sgas.example.net:8001/sgas/ur"):
            text = text.replace(service, self.simulator.sgas_url)
        text = text.replace("https://msg.example.org", self.simulator.ams_url)
        text = text.replace('type = "ams"\n', f'type = "ams"\nauth_url = "{self.simulator.token_url}"\n')
        self.config.write_text(text, encoding="utf-8")
        (self.folder / "var" / "lib" / "usage-publisher").mkdir(parents=True, mode=0o700, exist_ok=True)

    def put(self, path: str, text: str) -> Path:
        """Write a file of the site, with the paths in it put below the folder."""
        file = Path(self.here(path))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.here(text), encoding="utf-8")
        return file

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Rows of the store."""
        connection = sqlite3.connect(self.folder / "var" / "lib" / "usage-publisher" / "store.db")
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("moving"))


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def with_credentials(text: str, pki: Pki) -> str:
    """The files of the host's certificate are those of the test."""
    return (
        text.replace("/etc/grid-security/hostcert.pem", str(pki.client.certificate))
        .replace("/etc/grid-security/hostkey.pem", str(pki.client.key))
        .replace("/etc/grid-security/certificates", str(pki.ca_directory))
    )


def test_from_arc(fixtures: Path, tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    walk = Walk("how-to/move-from-arc.md", tmp_path, simulator, pki)
    conf = with_credentials((fixtures / "moving" / "arc" / "arc.conf").read_text(), pki)
    walk.put("/etc/arc.conf", conf)
    accounting = tmp_path / "var" / "spool" / "arc" / "jobstatus" / "accounting"
    accounting.mkdir(parents=True)
    load(fixtures / "arc" / "accounting.sql", accounting / "accounting.db")
    state = sqlite3.connect(accounting / "publishing.db")
    state.executescript((fixtures / "moving" / "arc" / "publishing.sql").read_text())
    state.close()
    (tmp_path / "var" / "spool" / "arc" / "usagerecords").mkdir()
    walk.walk(until="usage-publisher shadow neic --against")
    assert not simulator.sgas.holdings()
    old = tmp_path / "var" / "spool" / "arc" / "usagerecords" / "1"
    old.write_text(walk.rendered("ogf-ur", "neic", "--since", "2026-01-01"))
    walk.walk(until="usage-publisher republish")
    held = {str(record) for record in simulator.sgas.holdings()}
    assert held, "what waited behind the marks was sent"
    states = walk.rows(
        "SELECT name, state, reason, max(deliveries.end_time) FROM deliveries JOIN targets ON targets.id = target_id "
        "WHERE name IN ('neic', 'egi') GROUP BY 1, 2, 3"
    )
    assumed = {row[0]: row[3] for row in states if row[2] == "assumed"}
    assert all(end is not None for end in assumed.values())
    assert {row[1] for row in states} <= {3, 5}, "all is delivered, or held for a reason"
    walk.walk()
    assert len(walk.ran) == len(list(walk.steps()))
    assert "will be sent" in walk.said[next(line for line in walk.ran if "--dry-run" in line)]


SYNC = "APEL-sync-message: v0.1\nSite: EXAMPLE-SITE\nSubmitHost: ce9\nNumberOfJobs: 3\nMonth: 9\nYear: 2026\n%%\n"


def test_from_apel(fixtures: Path, tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    walk = Walk("how-to/move-from-apel.md", tmp_path, simulator, pki)
    for name in ("client.cfg", "parser.cfg", "sender.cfg"):
        text = with_credentials((fixtures / "moving" / "apel" / name).read_text(), pki)
        text = text.replace("/etc/grid-security/servercert.pem", str(pki.server.certificate))
        text = re.sub(r"^(server_cert|include_vos).*\n", "", text, flags=re.MULTILINE)
        walk.put(f"/etc/apel/{name}", text.replace("local_jobs = false", "local_jobs = true"))
    for day in (fixtures / "torque" / "accounting").iterdir():
        target = tmp_path / "var" / "spool" / "torque" / "server_priv" / "accounting" / day.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(day.read_bytes())
    walk.put("/var/log/accounting/blahp.log-20261024", "")
    walk.put("/var/spool/apel/outgoing/5ba24c88/5ba24c8f0f129d", SYNC)
    walk.put("/etc/cron.d/apelclient", "")
    walk.walk(until="usage-publisher shadow apel --against")
    assert walk.rows("SELECT count(*) FROM batches") == [(0,)]
    sent = walk.rendered("apel-summary", "apel", "--since", "2026-10", "--until", "2026-11")
    groups = [record.fields for record in parse(sent).records]
    groups[0]["Processors"] = "99"
    columns = list(dict.fromkeys(name for group in groups for name in group))
    lines = [columns, *([group.get(name, "NULL") for name in columns] for group in groups)]
    walk.put("/var/tmp/summaries.tsv", "".join("\t".join(line) + "\n" for line in lines))
    walk.walk(until="sed -i '/# for the move")
    assert re.search(r"Processors +│ '\d+' +│ '99'", "".join(walk.said.values()))
    assert simulator.apel.holdings().messages == 0
    walk.walk(until="systemctl")
    assert not list((tmp_path / "var" / "spool" / "apel" / "outgoing").rglob("5ba*/*"))
    walk.walk()
    apel = simulator.apel.holdings()
    zeroed = [row.fields["Processors"] for row in apel.summaries.values() if row.fields["NumberOfJobs"] == "0"]
    assert zeroed == ["99"], "the client's key, which nothing here has"
    jobs = sum(int(row.fields["NumberOfJobs"]) for row in apel.summaries.values())
    assert jobs == sum(int(group["NumberOfJobs"]) for group in groups)
    assert not apel.rejected
    assert len(walk.ran) == len(list(walk.steps()))


def test_from_waldurs_site_agent(tmp_path: Path) -> None:
    """The page has no commands beyond `run`, `shadow`, `render`, and `reconcile`, and a table for the target."""
    page = (ROOT / "docs" / "how-to" / "move-from-waldur-site-agent.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    ended = time.time() - 60
    this_month = month_of(int(ended))
    row = ["Account", "User", "JobID", "State", "Start", "End", "Elapsed", "NCPUS", "AllocTRES"]
    began, until = (date_time(int(at)).removesuffix("Z") for at in (ended - 36_000, ended))
    job = ["physics", "ada", "1", "COMPLETED", began, until, "10:00:00", "100", "cpu=100,node=1"]
    (tmp_path / "sacct.psv").write_text("".join("|".join(line) + "\n" for line in (row, job)))
    with WaldurDouble("physics").running() as double:
        double.now = time.time
        double.write("physics", "cpu_k_hours", this_month, "7.00")
        double.write("physics", "cpu_k_hours", this_month, "7.00", "of-the-agent")
        given = table.replace("https://waldur.example.org", double.url).replace("0123456789abcdef" * 2, OFFERING)
        given = given.replace("2026-11-01", f"{this_month}-01")
        (tmp_path / "waldur.token").write_text("staff")
        (tmp_path / "waldur.token").chmod(0o600)
        source = '[sources.slurm]\ntype = "slurm"\npath = "sacct.psv"\ncluster = "c1"\ncomplete_since = "2026-01-01"\n'
        program = Inside(tmp_path, BASE + source + given)
        program("run").ok()
        assert "1 record" in program("shadow", "waldur").out
        assert '"amount":"1.00"' in program("render", "waldur-usage", "--target", "waldur").ok().out
        done = program("reconcile", "waldur")
        assert (done.code, "foreign" in done.out) == (1, True), done.out
        assert double.amounts(this_month)["physics", "cpu_k_hours", ""] == 7, "nothing was sent"
        program.configure(program.config.read_text().replace("shadow = true", f'replaces_until = "{this_month}-01"'))
        program("run").ok()
        assert double.amounts(this_month) == {
            ("physics", "cpu_k_hours", ""): 1, ("physics", "cpu_k_hours", "ada"): 1,
        }  # fmt: skip
        program("reconcile", "waldur").ok()
        program.configure(re.sub("replaces_until.*\n", "", program.config.read_text()))
        double.write("physics", "cpu_k_hours", this_month, "9.00")
        (tmp_path / "sacct.psv").write_text(
            (tmp_path / "sacct.psv").read_text() + "|".join([*job[:2], "2", *job[3:]]) + "\n"
        )
        assert program("run").code == 3
        assert double.amounts(this_month)["physics", "cpu_k_hours", ""] == 9, (
            "another program's values stop their account"
        )


def test_from_bart(fixtures: Path, tmp_path: Path, simulator: Simulator, pki: Pki) -> None:
    walk = Walk("how-to/move-from-bart.md", tmp_path, simulator, pki)
    text = with_credentials((fixtures / "moving" / "bart" / "bart.conf").read_text(), pki)
    text = text.replace("[logger]", f"x509_cert_dir={pki.ca_directory}\n[logger]").split("[slurm]")[0]
    text = re.sub(r"^log_vo=.*$", "", text, flags=re.MULTILINE)
    walk.put("/etc/bart/bart.conf", text)
    for name in ("usermap", "vomap"):
        walk.put(f"/etc/bart/{name}", (fixtures / "moving" / "bart" / name).read_text())
    logs = tmp_path / "var" / "spool" / "torque" / "server_priv" / "accounting"
    logs.mkdir(parents=True)
    for day in (fixtures / "torque" / "accounting").iterdir():
        (logs / day.name).write_bytes(day.read_bytes())
    walk.put("/var/spool/bart/torque.state", "107[2].batch.example.org 20261024")
    walk.put("/etc/cron.hourly/sgas-bart", "")
    archive = "/var/spool/bart/usagerecords/archive"
    walk.walk(until="usage-publisher shadow sgas --against")
    assert not simulator.sgas.holdings()
    sent = walk.rendered("ogf-ur", "sgas", "--since", "2026-10-24", "--until", "2026-10-25")
    lost = re.search(r"<JobUsageRecord>.*?</JobUsageRecord>", sent, re.DOTALL)
    assert lost is not None
    theirs = re.sub(r'recordId="[^"]*', lambda found: f"{found[0]}-of-bart", sent)
    walk.put(f"{archive}/everything", theirs)
    asked(simulator, pki, "POST", "/sgas/ur", theirs.encode())
    of_bart = set(simulator.sgas.holdings())
    walk.walk()
    assert len(walk.ran) == len(list(walk.steps()))
    held = set(simulator.sgas.holdings()) - of_bart
    both = {record for record in re.findall(r'recordId="([^"]*)', sent) if record in held}
    assert held, "what BaRT had not sent"
    assert both == set(), "nothing that BaRT had sent"
