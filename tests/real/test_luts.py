"""What LUTS makes of our usage records, and what our simulator of SGAS makes of them: the same, or both refuse them."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from formats.check.sgas_times import duration_s, instant
from publisher.simulator.sgas_records import NotUsageRecordsError, read
from publisher.simulator.sgas_rows import ProcessingFailedError, UsageRecord, usage_record
from publisher.testing.delivery import DeliverySite
from publisher.testing.jobs import HOSTILE, make_job
from tests.publisher.targets.doubles import FolderDouble
from tests.real.programs import RealProgram

_CHANGED_MESSAGES: Final = 2000
_ELEMENT: Final = re.compile(r"<(\w+:(?!MachineName|Host\b)\w+)((?: [^<>]*)?)>([^<>]*)</\1>")
"""An element with a text. One without a machine is refused by what follows the parser."""
_VALUES: Final = (
    "", " ", "-1", "0", "12.5", "x", "007", "1e3", "99999999999999999999", "PT", "PT1H", "P1D", "P1DT1.9S", "-PT1S",
    "P1Y2M", "PT1,5S", "2026-02-30T00:00:00Z", "2026-11-01T00:00:00", "2026-11-01T00:00:00+02:00", "20261101T000000Z",
    "2026-W45-1T00:00:00Z", "2026-11-01", "/x", "a" * 41, "a" * 121,
)  # fmt: skip


def test_rows(tmp_path: Path) -> None:
    luts = RealProgram("luts")
    written = list(messages(tmp_path))
    assert compare(luts, written) == len(written), "all of ours is read"
    luts.compared("messages as ogf-ur", len(written))


def test_changed_messages(tmp_path: Path) -> None:
    luts = RealProgram("luts")
    chance = random.Random(1)
    written = list(messages(tmp_path))
    changed = [_changed(chance.choice(written), chance) for _ in range(_CHANGED_MESSAGES)]
    assert 0 < compare(luts, changed) < len(changed), "some are read, and some refused"
    luts.compared("changed messages of ogf-ur", len(changed))


def messages(folder: Path) -> Iterator[str]:
    """What a site with odd jobs writes."""
    double = FolderDouble(folder / "outgoing", layout="files", records="ogf-ur")
    site = DeliverySite(folder, double, lambda body: body, None, batch_records=3)
    texts = [text for text in HOSTILE if text.encode("utf-8", "ignore").decode() == text]
    site.add(
        *(make_job(number, wall_s=100 * number, user_dn=f"/DC=org/CN=User {number % 3}") for number in range(1, 20)),
        *(make_job(100 + number, name=text, queue=text, user_dn=text) for number, text in enumerate(texts)),
        make_job(33, fqans=("/atlas/no/Role=production", "/atlas"), cores=8, nodes=2, exit_code=-1),
        make_job(34, memory_rss_kib=1 << 40, cpu_ms=1 << 40, cpu_user_ms=1, cpu_system_ms=1 << 39),
    )
    site.settle()
    site.reopen()
    yield from (file.read_text(encoding="utf-8") for file in double.files())


def _changed(message: str, chance: random.Random) -> str:
    """With an element gone, twice, or with another text."""
    element = chance.choice(list(_ELEMENT.finditer(message)))
    name, attributes, _ = element.groups()
    other = f"<{name}{attributes}>{chance.choice(_VALUES)}</{name}>"
    put = ("", element[0] + element[0], other, element[0] + other)[chance.randrange(4)]
    return message[: element.start()] + put + message[element.end() :]


def compare(luts: RealProgram, given: list[str]) -> int:
    """How many of the messages are read, alike by both; the others both refuse."""
    taken = 0
    for message, real in zip(given, luts.read("luts_rows", given), strict=True):
        ours = ours_of(message)
        if isinstance(ours, str):
            assert "error" in real, f"only we refuse it: {ours}\n{message}"
            continue
        assert "rows" in real, f"only LUTS refuses it: {real}\n{message}"
        for record, row in zip(ours, real["rows"], strict=True):
            assert columns(record) == {name: row[name] for name in columns(record)}, message
        taken += 1
    return taken


def ours_of(message: str) -> list[UsageRecord] | str:
    """What the simulator reads, or why its program fails. What the database refuses is not asked here."""
    try:
        records = [usage_record(values) for values in read(message.encode())]
    except (NotUsageRecordsError, ProcessingFailedError) as error:
        return str(error)
    failed = [record.refusal for record in records if isinstance(record.refusal, ProcessingFailedError)]
    return str(failed[0]) if failed else records


def columns(record: UsageRecord) -> Mapping[str, Any]:
    """The columns that are counted by, as LUTS gives them to its database."""
    return {
        "record_id": record.record_id,
        "global_job_id": record.global_job_id,
        "local_job_id": record.local_job_id,
        "machine_name": record.machine,
        "global_user_name": record.user,
        "vo_name": record.vo,
        "status": record.status,
        "node_count": record.node_count,
        "processors": record.processors,
        "wall_duration": None if record.wall is None else duration_s(record.wall),
        "cpu_duration": _cpu_s(record.cpu),
        "start_time": _instant(record.start),
        "end_time": _instant(record.end),
        "create_time": _instant(record.create_time),
    }


def _cpu_s(durations: tuple[str, ...]) -> int | None:
    read_s = [duration_s(each) for each in durations]
    return sum(each for each in read_s if each is not None) if read_s and None not in read_s else None


def _instant(text: str | None) -> str | None:
    at = None if text is None else instant(text)
    return None if at is None else f"{at:%Y %m %d %H:%M:%S}"
