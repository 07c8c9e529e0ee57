"""import ssm-queue: the messages that SSM left are sent unchanged, once, oldest first, and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.errors import PublisherError, StoreCorruptError, UsageError
from publisher.events import ignore
from publisher.migrate.ssm_queue import Queue, Taken
from publisher.publish.context import Tools
from publisher.targets.base import Accepted, Message, Outcome, Refused, Transient, Unauthorised
from publisher.targets.message_files import elements_of, locked
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, NOW, OCTOBER, ListSource, Site, make_job

SUMMARY = """\
APEL-summary-job-message: v0.2
Site: EXAMPLE-SITE
Month: {month}
Year: 2026
GlobalUserName: /DC=org/CN=Ada
VO: atlas
VOGroup: /atlas
VORole: None
SubmitHost: ce9.example.org
InfrastructureType: grid
ServiceLevelType: HEPSPEC
ServiceLevel: 10.0
NodeCount: 1
Processors: 1
EarliestEndTime: {begin}
LatestEndTime: {begin}
WallDuration: 100
CpuDuration: 90
NumberOfJobs: {jobs}
%%
"""
JOBS = """\
APEL-individual-job-message: v0.3
Site: EXAMPLE-SITE
SubmitHost: ce9.example.org
LocalJobId: 17
WallDuration: 100
CpuDuration: 90
Processors: 1
NodeCount: 1
StartTime: 1793491200
EndTime: 1793491300
InfrastructureType: grid
ServiceLevelType: HEPSPEC
ServiceLevel: 10.0
%%
"""
SYNC = "APEL-sync-message: v0.1\nSite: EXAMPLE-SITE\nSubmitHost: ce9\nNumberOfJobs: 3\nMonth: {month}\nYear: 2026\n%%\n"


def summary(month: int, jobs: int = 1) -> str:
    return SUMMARY.format(month=month, jobs=jobs, begin=(OCTOBER if month == 10 else NOVEMBER) + 60)


class Left:
    """A queue that SSM left, and a site that takes it over."""

    def __init__(self, folder: Path, receiver: RecordReceiver, **settings: object) -> None:
        self.path = folder / "outgoing"
        self.receiver = receiver
        self.site = Site(folder, [ListSource("ce1")], [receiver])
        self.site.configure(receiver.name, **settings)
        self._number = 0

    def add(self, text: str | bytes) -> str:
        """Add a message after the others."""
        self._number += 1
        name = f"5ba24c8{self._number // 10}/5ba24c8f0f{self._number:04x}"
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return name

    def queue(self) -> Queue:
        publisher = self.site.publisher
        with publisher.alone_at(self.receiver.name) as plan:
            settings = publisher.config.targets[self.receiver.name]
            limit = self.receiver.payload_limit_bytes()
            return Queue(self.path, publisher.store, plan.target_id, settings, limit, NOW)

    def fates(self) -> list[str]:
        return [message.fate for message in self.queue().messages()]

    def whys(self) -> str:
        return " | ".join(message.why for message in self.queue().messages())

    def send(self) -> Taken:
        return self.queue().send(self.receiver, Tools(lambda: NOW, ignore, lambda _s: None))

    @property
    def names(self) -> list[str]:
        return list(elements_of(self.path))

    @property
    def kept(self) -> list[str]:
        folder = self.path.with_name("outgoing.taken-over")
        return list(elements_of(folder)) if folder.exists() else []


class Jobs(RecordReceiver):
    """A service that keeps complete messages."""

    def store(self, message: Message) -> Accepted:
        """Take it."""
        return Accepted({"messageIds": str(len(self.messages))})


class StopsAfterOne(Jobs):
    """The same, which takes one message and no other until it `stops` no more."""

    stops = True

    def payload_limit_bytes(self) -> int:
        """More, later."""
        return 2000 if self.stops else 4000

    def post(self, message: Message) -> Outcome:
        """Check the messages, and store the first."""
        if self.stops and self.messages:
            return Transient("not now")
        return super().post(message)


@pytest.fixture
def left(tmp_path: Path) -> Left:
    return Left(tmp_path, SummaryReceiver("apel", "ams"), records="apel-summary", sync=True)


def test_as_they_are_oldest_first_and_kept(left: Left) -> None:
    names = [left.add(text) for text in (summary(10), summary(11, 1), summary(11, 2), SYNC.format(month=10))]
    assert left.fates() == ["send"] * 4
    taken = left.send()
    assert (taken.sent, taken.records, taken.left, taken.answer) == (4, 4, 0, None)
    assert [message.payload.decode() for message in left.receiver.messages] == [
        summary(10), summary(11, 1), summary(11, 2), SYNC.format(month=10)
    ]  # fmt: skip
    assert isinstance(left.receiver, SummaryReceiver)
    assert left.receiver.total()[0] == 3, "of two summaries of a month the later one counts"
    assert (left.names, left.kept) == ([], names)
    assert left.site.rows("SELECT format, records, state FROM batches ORDER BY id") == [
        ("apel-summary", 1, 2), ("apel-summary", 1, 2), ("apel-summary", 1, 2), ("apel-sync", 1, 2)
    ]  # fmt: skip


def test_when_the_service_is_down_everything_stays(left: Left) -> None:
    names = [left.add(summary(10)), left.add(summary(11))]
    left.receiver.fault = lambda message: Transient("HTTP 503") if "Month: 11" in message.payload.decode() else None
    taken = left.send()
    assert (taken.sent, taken.answer) == (1, "HTTP 503")
    assert (left.names, left.kept) == (names[1:], names[:1])
    left.receiver.fault = lambda _message: None
    assert left.send().sent == 1
    assert left.names == []


@pytest.mark.parametrize("outcome", [Unauthorised("HTTP 403"), Refused("HTTP 400", certain=True)])
def test_when_it_is_refused_everything_stays(left: Left, outcome: Outcome) -> None:
    left.add(summary(10))
    left.receiver.fault = lambda _message: outcome
    taken = left.send()
    assert taken.unauthorised is isinstance(outcome, Unauthorised)
    assert len(left.names) == 1


def test_one_that_was_sent_and_could_not_be_taken_out_of_the_queue_is_not_sent_again(left: Left) -> None:
    left.add(summary(10))
    kept = left.path.with_name("outgoing.taken-over")
    kept.write_text("a file where the folder should be")
    with pytest.raises(PublisherError, match="cannot be moved"):
        left.send()
    assert len(left.names) == 1
    kept.unlink()
    taken = left.send()
    assert (taken.sent, left.names, left.receiver.posts) == (1, [], 1)


def test_nothing_is_sent_while_a_message_that_was_sent_is_damaged(left: Left) -> None:
    left.add(summary(10))
    kept = left.path.with_name("outgoing.taken-over")
    kept.write_text("a file where the folder should be")
    with pytest.raises(PublisherError, match="cannot be moved"):
        left.send()
    kept.unlink()
    with left.site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE batches SET uid = 'tsm' || substr(uid, 4)")
    with pytest.raises(StoreCorruptError, match="batch 1 is not what was recorded"):
        left.send()
    assert left.receiver.posts == 1


def test_summaries_that_were_sent_from_here_since_are_not_sent(left: Left) -> None:
    left.site.sources["ce1"].add(make_job(1))
    left.site.collect()
    left.site.publish()
    posts = left.receiver.posts
    both = summary(10) + summary(11).partition("\n")[2]
    older, sync, october, mixed = (
        left.add(summary(11)),
        left.add(SYNC.format(month=11)),
        left.add(summary(10)),
        left.add(both),
    )
    assert left.fates() == ["older", "older", "send", "part"]
    taken = left.send()
    assert (taken.set_aside, taken.sent, taken.records, taken.left) == (2, 2, 2, 0)
    assert left.receiver.posts == posts + 2
    assert left.receiver.messages[-1].payload.decode().rstrip("\n") == summary(10).removesuffix("%%\n").rstrip("\n")
    assert (left.names, left.kept) == ([], sorted([older, sync, october, mixed])), "SSM finds none of them later"


def test_a_stale_sync_message_does_not_stay_for_ssm(left: Left) -> None:
    """Delivered later, it would replace the newer counts of the months that are sent from here."""
    left.site.sources["ce1"].add(make_job(1))
    left.site.collect()
    left.site.publish()
    months = [SYNC.format(month=month) for month in (9, 10, 11)]
    name = left.add(months[0] + "".join(month.partition("\n")[2] for month in months[1:]))
    (message,) = left.queue().messages()
    assert (message.fate, message.records) == ("part", 2)
    assert message.why.startswith("sent from here or taken over since: 2026-11. ")
    assert left.send().left == 0
    sent = left.receiver.messages[-1].payload.decode()
    assert sent.startswith("APEL-sync-message: v0.1\n")
    assert [line for line in sent.splitlines() if line.startswith("Month")] == ["Month: 9", "Month: 10"]
    assert (left.names, left.kept) == ([], [name])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hello", "not a message for APEL"),
        ("", "not a message for APEL"),
        (b"\x00\x01", "not a message for APEL"),
        (JOBS, "counts neither"),
        (summary(11).replace("Month: 11", "Month: 13"), "would refuse"),
        (summary(11).replace("NodeCount: 1\n", ""), "would refuse"),
        ("APEL-cloud-message: v0.4\nVMUUID: 1\n%%\n", "not a message for APEL"),
    ],
    ids=["text", "empty", "binary", "jobs", "month", "missing", "cloud"],
)
def test_what_would_be_lost_stays_with_the_reason(left: Left, text: str | bytes, why: str) -> None:
    name = left.add(text)
    left.add(summary(10))
    assert left.fates()[0] == "leave"
    assert why in left.whys()
    taken = left.send()
    assert (taken.left, taken.sent, left.names) == (1, 1, [name])


def test_a_header_alone_is_not_needed(left: Left) -> None:
    left.add("APEL-sync-message: v0.1\n")
    assert left.fates() == ["empty"]
    assert left.send().set_aside == 1
    assert left.receiver.posts == 0


def test_one_that_is_too_large_is_sent_in_parts(tmp_path: Path) -> None:
    header, _, record = JOBS.partition("\n")
    records = [record.replace("LocalJobId: 17", f"LocalJobId: {number}") for number in range(20)]
    left = Left(tmp_path, Jobs("apel", "ams", limit_bytes=2000), records="apel-job")
    left.add(header + "\n" + "".join(records))
    assert left.send().records == 20
    parts = [message.payload.decode() for message in left.receiver.messages]
    assert len(parts) > 2
    assert all(part.startswith(header) and len(part) <= 2000 for part in parts)
    assert "".join(part.partition("\n")[2].removesuffix("\n") + "\n%%\n" for part in parts) == "".join(records)


def test_one_that_was_sent_in_part_is_sent_whole_with_another_limit(tmp_path: Path) -> None:
    header, _, record = JOBS.partition("\n")
    records = [record.replace("LocalJobId: 17", f"LocalJobId: {number}") for number in range(20)]
    service = StopsAfterOne("apel", "ams")
    left = Left(tmp_path, service, records="apel-job")
    left.add(header + "\n" + "".join(records))
    assert left.send().answer is not None
    service.stops = False
    assert left.send().records == 20
    sent = "".join(message.payload.decode() for message in left.receiver.messages)
    assert all(f"LocalJobId: {number}\n" in sent for number in range(20))


def test_what_ssm_has_at_work_is_left_to_it(left: Left) -> None:
    name = left.add(summary(10))
    (left.path / f"{name}.lck").touch()
    taken = left.send()
    assert (taken.busy, taken.sent, left.names) == (1, 0, [name])


def test_a_lock_ends_with_its_holder(left: Left) -> None:
    name = left.add(summary(10))
    with locked(left.path, name) as ours, locked(left.path, name) as again:
        assert (ours, again) == (True, False)
    assert not (left.path / f"{name}.lck").exists()


def test_a_link_is_not_followed(left: Left, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(summary(10))
    name = left.add("x")
    (left.path / name).unlink()
    (left.path / name).symlink_to(secret)
    assert left.fates() == ["leave"]
    assert left.send().left == 1
    assert secret.exists()


def test_no_queue(left: Left) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        left.fates()


def test_a_queue_that_cannot_be_changed(left: Left, monkeypatch: pytest.MonkeyPatch) -> None:
    left.add(summary(10))

    def refuse(*_args: object, **_more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.link", refuse)
    with pytest.raises(PublisherError, match="as the user of SSM"):
        left.send()
    assert left.receiver.posts == 0
