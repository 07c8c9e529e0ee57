"""What APEL's own record classes read from our messages, and what our simulator reads: the same, or both refuse it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.simulator.apel import _read_text
from publisher.simulator.apel_tables import LoadError, read_car
from publisher.testing.delivery import NAME, DeliverySite
from publisher.testing.jobs import NOW, make_job
from tests.publisher.targets.doubles import FolderDouble
from tests.real.programs import RealProgram

FORMATS: Final = [
    ("apel-job", "0.3"), ("apel-job", "0.4"), ("apel-summary", "0.2"), ("apel-summary", "0.4"),
    ("apel-normalised-summary", "0.3"), ("apel-normalised-summary", "0.4"), ("emi-car", None),
]  # fmt: skip
_VALUES: Final = ("", "None", "null", "-1", "0", "12.5", "x", "{hepscore23: 1.5}", "{other: 1}", "99999999999999999999")
_SCORES: Final = re.compile(r"\{\s*\w+\s*:\s*([\d.]+)\s*\}")
_OF_DATABASE: Final = re.compile(r" is not in \d|the server has no default")
"""What the columns of APEL's database refuse, not its classes."""
_NOT_STORED: Final = frozenset({"RecordId", "GlobalJobId"})
"""Of CAR; the simulator keeps them beside."""
_CHANGED_MESSAGES: Final = 300


@pytest.fixture(scope="module")
def apel() -> RealProgram:
    return RealProgram("apel")


@pytest.mark.parametrize(("records", "version"), FORMATS)
def test_rows(tmp_path: Path, apel: RealProgram, records: str, version: str | None) -> None:
    written = list(messages(tmp_path, records, version))
    assert compare(apel, written) == len(written), "all of ours is read"
    apel.compared(f"messages as {records} {version or ''}".rstrip(), len(written))


@pytest.mark.parametrize(("records", "version"), [each for each in FORMATS if each[1] is not None])
def test_changed_messages(tmp_path: Path, apel: RealProgram, records: str, version: str) -> None:
    chance = random.Random(version)
    written = list(messages(tmp_path, records, version))
    changed = [_changed(chance.choice(written), chance) for _ in range(_CHANGED_MESSAGES)]
    read = compare(apel, changed)
    assert 0 < read < len(changed), "some are read, and some refused"
    apel.compared(f"changed messages of {records} {version}", len(changed))


def messages(folder: Path, records: str, version: str | None) -> Iterator[str]:
    """What a site with odd jobs writes."""
    settings = {
        "layout": "files",
        "records": records,
        "local_jobs": "send",
        **({"version": version} if version else {}),
    }
    double = FolderDouble(folder / "outgoing", **settings)
    site = DeliverySite(folder, double, lambda body: body, None, batch_records=5)
    del site.table["targets"][NAME]["vo"]
    site.add(
        *(make_job(number, wall_s=100 * number, user_dn=f"/DC=org/CN=User {number % 3}") for number in range(1, 20)),
        make_job(31, user_dn="/DC=org/O=Ünïted/CN=Zoë: 'quoted' %%", queue="a b", name="x\ny"),
        make_job(32, vo=None, user_dn=None, local_user="ada", local_group="physics"),
        make_job(33, fqans=("/atlas/no/Role=production",), cores=8, nodes=2),
        make_job(34, memory_rss_kib=1 << 40, cpu_ms=1 << 40),
    )
    site.settle()
    site.reopen()
    yield from (file.read_text(encoding="utf-8") for file in double.files())


def _changed(message: str, chance: random.Random) -> str:
    """With a line gone, twice, or with another value."""
    lines = message.splitlines()
    number = chance.randrange(1, len(lines))
    match chance.randrange(3):
        case 0:
            del lines[number]
        case 1:
            lines.insert(number, lines[number])
        case _:
            name, colon, _ = lines[number].partition(":")
            lines[number] = f"{name}{colon} {chance.choice(_VALUES)}" if colon else lines[number]
    return "\n".join(lines) + "\n"


def compare(apel: RealProgram, given: list[str]) -> int:
    """How many of the messages are read, alike by both; the others both refuse, or APEL's database does."""
    read = 0
    for message, real in zip(given, apel.read("apel_records", given), strict=True):
        ours = ours_of(message)
        if isinstance(ours, str):
            assert "error" in real or _OF_DATABASE.search(ours), f"only we refuse it: {ours}\n{message}"
            continue
        assert "rows" in real, f"only APEL refuses it: {real}\n{message}"
        found = [each for pair in zip(ours, real["rows"], strict=True) for each in differences(*pair)]
        assert not found, f"{found}\n{message}"
        read += 1
    return read


def ours_of(message: str) -> list[dict[str, str]] | str:
    """What the simulator reads, or why it refuses the message."""
    try:
        return read_car(message.encode(), NOW) if message.startswith("<") else _read_text(message, NOW)[1]
    except LoadError as error:
        return str(error)


def differences(ours: Mapping[str, str], real: Mapping[str, Any]) -> Iterator[str]:
    """Fields that both have with other values, or that only one has."""
    for name in (ours.keys() | real.keys()) - _NOT_STORED:
        one, other = ours.get(name, "None"), real.get(name, "None")
        if _plain(one) != _plain(other):
            yield f"{name}: {one!r}, APEL has {other!r}"


def _plain(text: str) -> float | str:
    """Numbers by value, a score by its value alone, names without case, as APEL's database compares them."""
    scores = _SCORES.fullmatch(text)
    try:
        return float(scores[1] if scores else text)
    except ValueError:
        return text.casefold()
