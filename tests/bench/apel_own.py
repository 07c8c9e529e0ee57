"""The APEL client for measurements: its parser and client, with a MariaDB of its own.

Its code comes from a repository of github.com/apel/apel in `SOURCES`, with that of github.com/apel/ssm, which it
imports; the database is the host's. What is prepared is kept in the folder of inputs. Nothing is sent: its messages
stay in its queue.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from tests.bench.measure import Bench, Measured
from tests.real.programs import PROGRAMS, repository_in, unpack

PROGRAM: Final = "apel-client"
REQUIREMENTS: Final = (*PROGRAMS["apel"], *PROGRAMS["ssm"], "mysqlclient", "stomp.py")
_LDAP: Final = """\
class SERVER_DOWN(Exception): ...
class NO_SUCH_OBJECT(Exception): ...
"""
"""In place of python-ldap, which is imported and not used here."""
_DATABASE: Final = """\
[db]
hostname = 127.0.0.1
port = {port}
name = client
username = apel
password = apel
[logging]
logfile = {folder}/log
level = INFO
console = false
"""
_PARSER: Final = (
    _DATABASE
    + """\
[site_info]
site_name = EXAMPLE-SITE
lrms_server = batch.example.org
[blah]
enabled = false
[batch]
enabled = true
reparse = false
type = PBS
parallel = true
dir = {logs}
filename_prefix = 20
subdirs = false
"""
)
_CLIENT: Final = (
    _DATABASE
    + """\
[spec_updater]
enabled = false
site_name = EXAMPLE-SITE
lrms_server = batch.example.org
spec_type = HEPscore23
spec_value = 14.2
[joiner]
enabled = true
local_jobs = true
[unloader]
enabled = true
dir_location = {folder}/queue
send_summaries = {summaries}
dict_benchmark_type = false
withhold_dns = false
interval = latest
send_ur = false
[ssm]
enabled = false
"""
)


@lru_cache
def missing(kept: Path) -> str:
    """Why the client is missing; empty if it is in the folder of inputs (`kept`)."""
    if not (shutil.which("mariadbd") and shutil.which("mariadb-install-db")):
        return "there is no mariadbd on PATH"
    if (kept / PROGRAM / "ready").exists():
        return ""
    sources = Path(os.environ.get("SOURCES") or "none")
    found = {name: repository_in(sources / name) for name in ("apel", "ssm")}
    if None in found.values():
        return "no repositories apel and ssm in SOURCES=DIR"
    folder = kept / PROGRAM
    subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
    install = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if subprocess.run([*install, *REQUIREMENTS], check=False).returncode:
        return f"pip cannot install {' '.join(REQUIREMENTS)}"
    for name, git in found.items():
        assert git is not None
        unpack(git, folder / name)
    (folder / "ldap.py").write_text(_LDAP, encoding="utf-8")
    (folder / "ready").touch()
    return ""


class MeasuredApelClient:
    """The client with its database, which has a copy of the tables in a folder, or none."""

    def __init__(self, bench: Bench, logs: Path, *, summaries: bool) -> None:
        self.bench = bench
        self.tables = bench.folder / "tables"
        self._root = (bench.inputs / PROGRAM).absolute()
        self._logs = logs
        self._summaries = summaries

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Its database runs while inside, with the settings that it comes with."""
        new = not self.tables.exists()
        if new:
            install = ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal"]
            subprocess.run([*install, f"--datadir={self.tables}"], check=True, stdout=subprocess.DEVNULL)
        with tempfile.TemporaryDirectory() as folder:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._port = int(free.getsockname()[1])
            path = Path(folder) / "socket"
            listen = (f"--socket={path}", f"--port={self._port}", "--bind-address=127.0.0.1")
            user = () if os.getuid() else ("--user=root",)
            server = ["mariadbd", "--no-defaults", *user, f"--datadir={self.tables}", *listen]
            process = subprocess.Popen(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                self._server = process.pid
                ask = ["mariadb", "--no-defaults", f"--socket={path}", "--user=root"]
                wait = ["mariadb-admin", *ask[1:], "--wait=60", "ping"]
                subprocess.run(wait, check=True, capture_output=True)
                if new:
                    self._make(ask)
                yield
            finally:
                process.terminate()
                process.wait()

    def _make(self, ask: list[str]) -> None:
        user = "CREATE DATABASE client; GRANT ALL ON *.* TO 'apel'@'127.0.0.1' IDENTIFIED BY 'apel'"
        subprocess.run([*ask, f"--execute={user}"], check=True)
        with (self._root / "apel" / "schemas" / "client.sql").open("rb") as schema:
            subprocess.run([*ask, "client"], stdin=schema, check=True)

    def run(self, jobs: int) -> Measured:
        """What its parser, its client, and the database's server use, one after the other. Messages stay in its queue.

        Raises `RuntimeError` where one fails.
        """
        before = _cpu_s(self._server)
        parsed = self._cost_of("parser", jobs, _PARSER)
        sent = self._cost_of("client", jobs, _CLIENT)
        cpu_s = parsed.cpu_s + sent.cpu_s + _cpu_s(self._server) - before
        return Measured(jobs, parsed.wall_s + sent.wall_s, cpu_s, max(parsed.peak_mib, sent.peak_mib))

    def taken(self) -> int:
        """Take the messages out of its queue; return how many there were."""
        files = [path for path in (self.bench.folder / "queue").rglob("*") if path.is_file()]
        for path in files:
            path.unlink()
        return len(files)

    def _cost_of(self, script: str, jobs: int, text: str) -> Measured:
        config = self.bench.folder / f"{script}.cfg"
        values = {"port": self._port, "folder": self.bench.folder, "logs": self._logs}
        config.write_text(text.format(**values, summaries=str(self._summaries).lower()), encoding="utf-8")
        modules = ":".join(str(path) for path in (self._root, self._root / "apel", self._root / "ssm"))
        program = (self._root / "bin" / "python", self._root / "apel" / "bin" / f"{script}.py", "--config", config)
        return self.bench.cost_of(jobs, "env", "TZ=UTC", f"PYTHONPATH={modules}", *program)


def _cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
