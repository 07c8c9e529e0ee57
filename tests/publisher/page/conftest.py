"""A site with jobs whose names are markup, its page served by the real command, and a browser to look at it."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from PIL import Image

from tests.publisher.cli.program import BASE, COMMAND, Program
from tests.publisher.page.browser import MISSING, PROGRAM, Browser

DAY = 1_793_491_200
"""2026-11-01."""
JOBS = 1500
LONG_NAME = "/DC=org/DC=example/OU=Department of Computational Physics/CN=Somebody With a Long Name"
EVIL = '<script>alert("x")</script>'
TOKENS = {"alice": "alice-token-0123456789", "root": "root-token-0123456789", "boss": "boss-token-0123456789"}
SOURCES = """
[sources.dqs]
type = "dqs"
path = "act_file"
[targets.files]
type = "directory"
path = "files"
layout = "files"
records = "ogf-ur"
[charges]
[[charges.prices]]
resource = "cores"
price = "0.02"
[[charges.adjustments]]
month = "2026-11"
payer = "bob"
amount = "-1.00"
reason = "between us and him"
[[allocations]]
name = "Wonderland"
user = "alice"
amount = 1000
since = "2026-11-01"
until = "2026-12-01"
[[allocations]]
name = "Builders"
user = "bob"
amount = 1000
since = "2026-11-01"
until = "2026-12-01"
[serve]
port = 0
"""


def act_line(number: int, owner: str, start: int, wall_s: int, name: str = "job", queue: str = "fast.q") -> str:
    """A line of an act_file: half of the time is the user's, a tenth the system's."""
    usage = [0, wall_s, wall_s // 2, wall_s // 10, 1000 + number, *[0] * 14]
    facts = [queue, f"node{number % 7}", 1, "linux,big", "users", owner, name, f"{name}.{number}", number]
    return ":".join(map(str, [*facts, start - 60, start, start + wall_s, *usage]))


def act_file() -> str:
    """A month of jobs, more by day than by night, of a few users, some of whom chose nasty names."""
    owners = ["alice", "bob", "carol", "dave", EVIL, "erin", "frank", "grace", "heidi", "_apt"]
    chance = random.Random(7)
    lines = []
    for number in range(1, JOBS + 1):
        day, hour = chance.randrange(30), min(23.9, max(0.0, chance.gauss(13, 4)))
        owner = owners[min(len(owners) - 1, int(chance.expovariate(0.35)))]
        lines.append(
            act_line(
                number,
                owner,
                DAY + day * 86_400 + int(hour * 3600),
                int(chance.lognormvariate(9, 0.8)),
                EVIL if number % 5 == 0 else f"job{number}",
                "slow.q" if number % 3 == 0 else "fast.q",
            )
        )
    return "\n".join(lines) + "\n"


def token_file(folder: Path) -> Path:
    """A user, an administrator and a manager."""
    digests = {name: hashlib.sha256(token.encode()).hexdigest() for name, token in TOKENS.items()}
    file = folder / "tokens.toml"
    file.write_text(
        '[groups.chemistry]\nrole = "user"\n[groups.operators]\nrole = "admin"\n[groups.board]\nrole = "manager"\n'
        f'[users.alice]\ngroup = "chemistry"\nsha256 = "{digests["alice"]}"\n'
        f'[users.root]\ngroup = "operators"\nsha256 = "{digests["root"]}"\n'
        f'[users.boss]\ngroup = "board"\nsha256 = "{digests["boss"]}"\n',
        encoding="utf-8",
    )
    file.chmod(0o600)
    return file


@pytest.fixture(scope="session")
def month(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A site that collected a month."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "act_file").write_text(act_file(), encoding="utf-8")
    site = Program(folder, BASE + SOURCES)
    site("collect").ok()
    return site


class Served:
    """The real command at work on a site."""

    def __init__(self, site: Program, *arguments: str, command: tuple[str, ...] = COMMAND) -> None:
        self.process = subprocess.Popen(
            [*command, "serve", *arguments], cwd=site.folder, env=site.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stderr is not None
        line = self.process.stderr.readline()
        if not line.startswith("The page is at "):
            pytest.fail(line + self.process.communicate()[1])
        self.url = line.split()[-1].rstrip("/")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.stop()

    def stop(self) -> str:
        """End it as systemd would; what it said."""
        self.process.send_signal(signal.SIGTERM)
        said = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == 0, said
        return said


@pytest.fixture(scope="session")
def page(month: Program) -> Iterator[str]:
    """The address of the page, open to all on this host."""
    with Served(month) as served:
        yield served.url


@pytest.fixture(scope="session")
def states(month: Program, tmp_path_factory: pytest.TempPathFactory) -> Program:
    """The same site with a user of a long name, after `publish`: one target has all records, another holds all."""
    site = month.copy(tmp_path_factory.mktemp("states"))
    settings = '[targets.summaries-of-a-service-with-a-long-name]\ntype = "directory"\npath = "summaries"\n'
    site.configure(site.config.read_text(encoding="utf-8") + settings + 'records = "apel-summary"\n')
    with (site.folder / "act_file").open("a", encoding="utf-8") as log:
        log.write(act_line(JOBS + 1, LONG_NAME, DAY + 20 * 86_400, 90_000) + "\n")
    site("collect").ok()
    assert site("publish").code == 3
    return site


@pytest.fixture(scope="session")
def states_page(states: Program) -> Iterator[str]:
    """The address of its page, open to all on this host."""
    with Served(states) as served:
        yield served.url


@pytest.fixture(scope="session")
def guarded_page(month: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page of a site with tokens."""
    site = month.copy(tmp_path_factory.mktemp("guarded"))
    token_file(site.folder)
    site.configure(site.config.read_text(encoding="utf-8") + 'tokens = "tokens.toml"\n')
    with Served(site) as served:
        yield served.url


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """The browser."""
    if PROGRAM is None:
        pytest.skip(MISSING)
    started = Browser(tmp_path_factory.mktemp("profile"))
    yield started
    started.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder for pictures of this run: that of `PICTURES`, else a temporary one. `PICTURES=docs/images make test
    TESTS=tests/publisher/page` makes those of the documents again, with few colours.
    """
    named = os.environ.get("PICTURES")
    folder = Path(named).absolute() if named else tmp_path_factory.mktemp("pictures")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    if named:
        for file in folder.glob("*.png"):
            with Image.open(file) as image:
                few = image.convert("RGB").quantize(128)
            few.save(file, optimize=True)
            file.chmod(0o644)
