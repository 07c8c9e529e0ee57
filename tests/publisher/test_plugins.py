"""Defective add-ons: their errors are reported as theirs, and end only what they were called for."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from formats.base import Rendered
from formats.calendar import Month
from formats.columns import RecordColumns, TotalColumns
from formats.job import Job
from formats.rule_codes import CannotRenderError, RuleCode
from formats.view import View
from publisher import plugins, sources
from publisher.config import schema
from publisher.config.schema import AddOnSettings
from publisher.config.target_kind import EvidenceSource, SecondVersion, TargetKind, added_kind
from publisher.errors import ConfigError, CredentialError, PublisherError, SourceError, TargetError, UnreachableError
from publisher.finding import Finding
from publisher.reason import sentence
from publisher.sources.base import Cursor, Page, Source, Unreadable, Window
from publisher.sources.plugin import AddedSource
from publisher.store.schema import State
from publisher.targets import make_target
from publisher.targets.base import (
    Accepted,
    EvidenceUnavailable,
    GivesRecords,
    GivesSums,
    GivesTotals,
    KeepsMessages,
    KeptMessage,
    Message,
    Outcome,
    Refused,
    Transient,
    Unknown,
)
from publisher.targets.identity import TargetContext
from publisher.targets.plugin import added_target
from tests.publisher.add_on import install
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job, make_jobs

DEFECTS = (ValueError("row 7"), OSError(28, "No space left on device"), KeyError("wall"), AssertionError())
BLAME = plugins.ITS_DEFECT
MESSAGE = Message("batch", "mine", "text/plain", b"x")


def telling(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


# --- sources


class Crashing(ListSource):
    """Fails after its first page."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name, page=2)
        self.error: Exception | None = error

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        pages = super().pages(cursor, window)
        yield next(pages)
        if self.error is not None:
            raise self.error
        yield from pages

    def check(self) -> list[Finding]:
        raise self.error or AssertionError


def added(source: Any) -> AddedSource:
    return AddedSource(source.name, schema.SourceSettings(type="mine"), lambda _name, _settings: source)


class OwnCursor(ListSource):
    """Keeps its place in keys of its own."""

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        assert set(cursor) in ({"file_marks"}, set())
        for page in super().pages({"at": cursor.get("file_marks", 0)}, window):
            yield msgspec.structs.replace(page, cursor={"file_marks": page.cursor["at"]})


def test_a_cursor_of_an_add_on_may_have_any_key(tmp_path: Path) -> None:
    source = OwnCursor("mine")
    source.add(*make_jobs(3))
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("neic")])
    site.sources["ce1"] = added(source)  # type: ignore[assignment]
    assert site.collect()["ce1"].read == 3
    source.add(*make_jobs(2, first=11))
    assert site.collect()["ce1"].read == 2


@pytest.mark.parametrize("error", [*DEFECTS, UnreachableError("no route")])
def test_a_source_that_fails_harms_no_other(tmp_path: Path, error: Exception) -> None:
    """What it gave is stored, the others are read; when it is fixed, it continues where it stopped."""
    bad, good = Crashing("bad", error), ListSource("good")
    bad.add(*make_jobs(5))
    good.add(*make_jobs(3, first=11))
    site = Site(tmp_path, [bad, good], [RecordReceiver("neic")])
    site.sources["bad"] = added(bad)  # type: ignore[assignment]
    found = site.collect()
    defect = f"the add-on 'mine' failed as a source: {telling(error)}. {BLAME}"
    assert found["bad"].error == (str(error) if isinstance(error, PublisherError) else defect)
    assert (found["bad"].new, found["good"].new, found["good"].error) == (2, 3, None)
    assert set(site.states("neic")) == {make_job(number).record_id for number in (1, 2, 11, 12, 13)}
    bad.error = None
    again = site.collect()
    assert (again["bad"].new, again["bad"].error) == (3, None)


class NoPage(ListSource):
    def __init__(self, name: str, *pages: object) -> None:
        super().__init__(name)
        self._given = pages

    def pages(self, _cursor: Cursor, _window: Window | None = None) -> Iterator[Page]:
        yield from self._given  # type: ignore[misc]


@pytest.mark.parametrize(
    "page",
    [
        "no page",
        Page((make_job(1, wall_ms="100"),), {}, 1),
        Page((make_job(1, end=17.5),), {}, 1),
        Page(("a job",), {}, 1),  # type: ignore[arg-type]
        Page((), {"at": Path("/x")}, 1),
        Page((), {}, 1, unreadable=(Unreadable("f", None, None, "why", "raw"),)),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_read_again_is_not_stored(tmp_path: Path, page: object) -> None:
    """A job with text for a number would be in the store for ever, and nothing could read it."""
    bad = NoPage("bad", Page((make_job(1),), {"at": 1}, 1), page)
    site = Site(tmp_path, [bad], [RecordReceiver("neic")])
    site.sources["bad"] = added(bad)  # type: ignore[assignment]
    found = site.collect()["bad"]
    assert found.error is not None
    assert found.error.startswith("the add-on 'mine' failed as a source: ")
    assert set(site.states("neic")) == {make_job(1).record_id}


@pytest.mark.parametrize("error", [*DEFECTS, SourceError("no log")])
def test_a_source_that_cannot_be_made_says_so_when_it_is_read(error: Exception) -> None:
    def make(_name: str, _settings: schema.SourceSettings) -> Source:
        raise error

    made = AddedSource("bad", schema.SourceSettings(type="mine"), make)
    for ask in (lambda: next(made.pages({})), made.complete_since, made.check):
        with pytest.raises(SourceError) as caught:
            ask()
        assert telling(error) in str(caught.value) or str(error) == str(caught.value)


def test_wrong_settings_of_a_source_are_reported_as_such() -> None:
    def make(name: str, _settings: schema.SourceSettings) -> Source:
        raise ConfigError("needs a path", key=f"sources.{name}.path")

    with pytest.raises(ConfigError, match=r"sources\.bad\.path: needs a path"):
        AddedSource("bad", schema.SourceSettings(type="mine"), make)


def test_a_check_and_a_beginning_of_knowledge_that_are_none() -> None:
    source = Crashing("bad", KeyError("x"))
    with pytest.raises(SourceError, match="KeyError"):
        added(source).check()
    source._complete_since = "2026"  # type: ignore[assignment]
    with pytest.raises(SourceError, match="failed as a source"):
        added(source).complete_since()


def test_an_add_on_whose_import_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_add_on.py").write_text("raise RuntimeError('no licence')\n")
    for group in (plugins.SOURCES, plugins.TARGETS):
        install(tmp_path / group, monkeypatch, group, mine="broken_add_on:Made")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot be loaded: RuntimeError: no licence"):
        sources.make_source("x", schema.SourceSettings(type="mine"))
    with pytest.raises(ConfigError, match="cannot be loaded: RuntimeError: no licence"):
        plugins.load(plugins.TARGETS, "mine", key="targets.x.type")


# --- targets


def guarded(receiver: Any) -> Any:
    return added_target(added_kind("mine", lambda *_: receiver), receiver.name, None, TargetContext())


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("took_it", [True, False])
@pytest.mark.parametrize("error", [KeyError("id"), UnreachableError("no route")])
def test_an_exception_in_a_post_means_unknown(tmp_path: Path, error: Exception, took_it: bool, workers: int) -> None:
    """The other target gets all; here everything waits, and comes again under the same ids: nothing lost or twice."""
    source = ListSource("ce1")
    source.add(*make_jobs(30))
    bad, good = RecordReceiver("bad"), RecordReceiver("good")
    site = Site(tmp_path, [source], [bad, good])
    for name in ("bad", "good"):
        site.configure(name, batch_records=10, workers=workers)
    site.collect()
    site.receivers["bad"] = guarded(bad)
    first: list[Message] = []

    def fail(message: Message, accepted: Accepted | None = None) -> Outcome | None:
        first.append(message)
        if len(first) == 2:
            raise error
        return accepted

    if took_it:
        bad.answer = fail  # type: ignore[assignment]
    else:
        bad.fault = fail
    done = site.publish()
    assert done["good"].sent.accepted == 30
    assert done["bad"].error is None
    assert str(error) in (done["bad"].sent.paused or "")
    left = site.counted("bad")
    assert sum(left.values()) == 30
    assert set(left) <= {State.ACCEPTED, State.WAITING, State.IN_FLIGHT}
    bad.answer, bad.fault = (lambda _message, accepted: accepted), (lambda _message: None)
    site.publish()
    assert site.counted("bad") == {State.ACCEPTED: 30}
    assert sorted(bad.held) == [make_job(number).record_id for number in range(1, 31)]
    again = [each.record_ids for each in bad.messages if each.batch_id == first[1].batch_id]
    assert len(set(again)) == 1, "the same batch, with the same records"


@pytest.mark.parametrize("given", [None, "accepted", True, Transient(ValueError("x"))])  # type: ignore[arg-type]
def test_what_is_not_an_outcome_is_unknown(given: object) -> None:
    bad = RecordReceiver("bad")
    bad.fault = lambda _message: given  # type: ignore[assignment,return-value]
    bad.answer = lambda _message, _accepted: given  # type: ignore[assignment,return-value]
    bad.store = lambda _message: Accepted({})  # type: ignore[method-assign]
    assert isinstance(guarded(bad).post(MESSAGE), Unknown)


def test_an_outcome_stays_what_it_is_and_a_receipt_can_be_kept() -> None:
    bad = RecordReceiver("bad")
    for outcome in (Refused("no", certain=True), Transient("later")):
        bad.fault = lambda _message, said=outcome: said  # type: ignore[misc]
        assert guarded(bad).post(MESSAGE) == outcome
    bad.fault = lambda _message: Accepted({"file": Path("/x"), 7: 8}, missing=["a"])  # type: ignore[arg-type,dict-item]
    assert guarded(bad).post(MESSAGE) == Accepted({"file": "/x", "7": "8"}, ("a",))
    bad.fault = lambda _message: (_ for _ in ()).throw(CredentialError("expired"))
    with pytest.raises(CredentialError):
        guarded(bad).post(MESSAGE)


def test_every_other_problem_of_a_target_stays_its_own(tmp_path: Path) -> None:
    """A run continues with the others, and no message of it is in flight."""

    class Odd(RecordReceiver):
        def payload_limit_bytes(self) -> int | None:
            raise ValueError("no limit")

    source = ListSource("ce1")
    source.add(*make_jobs(3))
    bad, good = Odd("bad"), RecordReceiver("good")
    site = Site(tmp_path, [source], [bad, good])
    site.collect()
    site.receivers["bad"] = guarded(bad)
    done = site.publish()
    assert str(done["bad"].error) == f"the add-on 'mine' failed as a target: ValueError: no limit. {BLAME}"
    assert done["good"].sent.accepted == 3
    assert site.counted("bad") == {State.WAITING: 3}
    with pytest.raises(TargetError, match="KeyError"):
        added_target(added_kind("mine", lambda *_: {}["x"]), "bad", None, TargetContext())


class Telling(RecordReceiver):
    def usage(self, *_: object) -> list[Any]:
        return ["no sum"]

    def last_registration_s(self, _machine: str) -> float | None:
        raise KeyError("machine")


class Keeping(RecordReceiver):
    taken_away = False

    def kept(self) -> Iterator[KeptMessage]:
        yield KeptMessage("a", b"x")
        raise ValueError("torn")

    def keeps(self, _name: str) -> bool:
        raise OSError("gone")


class Both(Telling, Keeping):
    pass


class Listing(RecordReceiver):
    def records(self, day: int) -> list[RecordColumns]:
        if day:
            raise ValueError("torn")
        return [RecordColumns("a", 5, 1000, 1000)]


class Totalling(RecordReceiver):
    def totals(self, month: Month) -> Sequence[TotalColumns] | EvidenceUnavailable:
        if month == _JANUARY:
            return EvidenceUnavailable("its list is empty")
        if month != _MARCH:
            raise ValueError("torn")
        return (TotalColumns(month, {"account": "a"}, 3),)


_JANUARY, _MARCH = Month(2026, 1), Month(2026, 3)


def described(made: type[RecordReceiver], evidence: EvidenceSource, **more: Any) -> TargetKind:
    return TargetKind(name="mine", settings=AddOnSettings, factory=made, evidence=evidence, **more)


@pytest.mark.parametrize(
    ("kind", "evidence"),
    [
        (RecordReceiver, "none"), (Telling, "query"), (Keeping, "files"), (Both, "query"), (Both, "files"),
        (Listing, "records"), (Totalling, "totals"),
    ],
)  # fmt: skip
def test_a_target_can_be_asked_what_the_descriptor_of_its_add_on_says(
    kind: type[RecordReceiver], evidence: EvidenceSource
) -> None:
    made = added_target(described(lambda *_: kind("bad"), evidence), "bad", None, TargetContext())  # type: ignore[arg-type]
    assert isinstance(made, GivesSums) == (evidence == "query")
    assert isinstance(made, KeepsMessages) == (evidence == "files")
    assert isinstance(made, GivesRecords) == (evidence == "records")
    assert isinstance(made, GivesTotals) == (evidence == "totals")
    if isinstance(made, GivesTotals):
        assert made.totals(_MARCH) == [TotalColumns(_MARCH, {"account": "a"}, 3)]
        assert isinstance(made.totals(_JANUARY), EvidenceUnavailable)
        with pytest.raises(TargetError, match="failed as a target"):
            made.totals(Month(2026, 2))
    if isinstance(made, GivesRecords):
        assert made.records(0) == [RecordColumns("a", 5, 1000, 1000)]
        with pytest.raises(TargetError, match="failed as a target"):
            made.records(1)
    if isinstance(made, GivesSums):
        for ask in (lambda: made.usage("m", 0, 1), lambda: made.last_registration_s("m")):
            with pytest.raises(TargetError, match="failed as a target"):
                ask()
    if isinstance(made, KeepsMessages):
        messages = made.kept()
        assert next(messages) == KeptMessage("a", b"x")
        assert made.taken_away is False
        for ask in (lambda: next(messages), lambda: made.keeps("a")):  # type: ignore[assignment,return-value]
            with pytest.raises(TargetError, match="failed as a target"):
                ask()


@pytest.mark.parametrize(
    ("kind", "evidence"), [(RecordReceiver, "none"), (Telling, "query"), (Keeping, "files"), (Both, "query")]
)
def test_a_run_reconciles_with_the_evidence_that_an_add_on_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[RecordReceiver], evidence: str
) -> None:
    install(tmp_path, monkeypatch, plugins.TARGETS, mine=f"{__name__}:{kind.__name__}", broken="nowhere:X")
    assert schema.AddOnSettings(type="mine").evidence_source == evidence
    assert schema.AddOnSettings(type="mine", evidence=["https://example.org/x"]).evidence_source == "file"
    assert schema.AddOnSettings(type="broken").evidence_source == "none"


KEEPING = described(Keeping, "files", second_version=SecondVersion.REFUSES_REPEATS, skips_local_jobs=True)
PERIODS = described(RecordReceiver, "none", second_version=SecondVersion.REPLACES_PERIOD)


def test_the_descriptor_of_an_add_on_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, plugins.TARGETS, mine=f"{__name__}:KEEPING", bare=f"{__name__}:RecordReceiver")
    mine, bare = schema.AddOnSettings(type="mine"), schema.AddOnSettings(type="bare", records="apel-summary")
    assert (mine.evidence_source, mine.second_version, mine.skips_local_jobs) == (
        "files", SecondVersion.REFUSES_REPEATS, True,
    )  # fmt: skip
    assert not mine.kind.is_offered
    assert (bare.kind.second_version, bare.second_version) == (SecondVersion.REPLACES, SecondVersion.REPLACES_PERIOD)
    assert isinstance(make_target("x", mine, TargetContext()), KeepsMessages)


@pytest.mark.parametrize(("kind", "records"), [("mine", "apel-summary"), ("periods", "ogf-ur")])
def test_a_format_that_the_service_could_not_be_sent_corrections_of_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, records: str
) -> None:
    install(tmp_path, monkeypatch, plugins.TARGETS, mine=f"{__name__}:KEEPING", periods=f"{__name__}:PERIODS")
    with pytest.raises(ConfigError, match=r"targets\.x\.records: .* replaces"):
        make_target("x", schema.AddOnSettings(type=kind, records=records), TargetContext())


# --- formats


class Form:
    """Fails at every third run; `message_fails`: at putting them together."""

    name, content_type = "mine", "text/plain"
    overhead_bytes = separator_bytes = 0
    message_fails = False

    def __init__(self, view: View) -> None:
        self._view = view

    def record(self, job: Job, _created: int) -> Rendered:
        number = int(job.local_id or 0)
        if number % 3 == 0:
            raise KeyError("queue")
        if number % 3 == 1:
            return Rendered(f'<r recordId="{job.record_id}">'.encode(), record_id=job.record_id)
        raise CannotRenderError(RuleCode.ADD_ON, "vo", text="this format insists on one")

    def message(self, bodies: Sequence[bytes]) -> bytes:
        if self.message_fails:
            raise IndexError("bodies")
        return b"".join(bodies)


class Taking(RecordReceiver):
    def store(self, message: Message) -> Accepted:
        self.held |= dict.fromkeys(message.record_ids, 1)
        return Accepted({})


@pytest.fixture
def form(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> type[Form]:
    """The format `mine` of an installed package, a class that a test may change."""
    folder = tmp_path_factory.mktemp("add_on")
    name = f"{folder.name}_of_a_test"  # of each test its own
    (folder / f"{name}.py").write_text(f"from {__name__} import Form\n\nclass Own(Form):\n    pass\n")
    install(folder, monkeypatch, plugins.FORMATS, mine=f"{name}:Own")
    made: type[Form] = importlib.import_module(name).Own
    return made


def test_a_record_that_a_format_fails_at_is_held_and_the_others_are_sent(tmp_path: Path, form: type[Form]) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(6))
    service = Taking("neic", "directory")
    site = Site(tmp_path, [source], [service])
    site.configure("neic", records="mine")
    site.collect()
    done = site.publish_to("neic")
    assert (done.sent.accepted, done.sent.held, done.error) == (2, 4, None)
    reasons = site.reasons("neic")
    assert reasons[make_job(3).record_id] == f"mine: the add-on failed for this record: KeyError: 'queue'. {BLAME}"
    assert reasons[make_job(2).record_id] == "vo: this format insists on one"


def test_a_message_that_a_format_cannot_make_is_not_sent(tmp_path: Path, form: type[Form]) -> None:
    form.message_fails = True
    source = ListSource("ce1")
    source.add(make_job(1))
    service, other = Taking("neic", "directory"), RecordReceiver("other")
    site = Site(tmp_path, [source], [service, other])
    site.configure("neic", records="mine")
    site.collect()
    done = site.publish()
    assert str(done["neic"].error) == f"the add-on 'mine' failed as a format: IndexError: bodies. {BLAME}"
    assert (done["other"].sent.accepted, service.posts, site.counted("neic")) == (1, 0, {State.WAITING: 1})
    form.message_fails = False
    assert site.publish_to("neic").sent.accepted == 1


def test_a_record_that_is_none(form: type[Form]) -> None:
    made = plugins.record_format("mine", View(site="X"))
    form.record = lambda *_: {"body": b"text"}  # type: ignore[assignment,return-value]
    assert made.record(make_job(1), 0).body == b"text"  # what has its form is one
    form.record = lambda *_: Rendered("text")  # type: ignore[assignment,arg-type,return-value]
    with pytest.raises(CannotRenderError) as caught:
        made.record(make_job(1), 0)
    assert "failed for this record" in sentence(caught.value.reason)
    form.message = lambda *_: "text"  # type: ignore[assignment,return-value]
    with pytest.raises(TargetError, match="failed as a format"):
        made.message([])
