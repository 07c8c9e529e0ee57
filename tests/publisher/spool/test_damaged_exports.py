"""Damage of an export: the import is refused with nothing imported, or what it imports is what was exported."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Table, func, insert, select

from publisher.errors import PublisherError, UsageError
from publisher.spool.base import Object, SpoolError
from publisher.spool.content import Summed
from publisher.spool.context import FILE_FORMATS
from publisher.spool.exchange import export, import_, read_manifest
from publisher.spool.kinds import EXPORTED, all_of
from publisher.store import schema
from publisher.store.database import Store, open_store
from publisher.store.schema import metadata
from tests.conftest import ROOT
from tests.extent import short_or_whole
from tests.publisher.spool.test_layouts import ITEM
from tests.publisher.store.kept_store import unpack

_DAMAGES_OF_CASE: Final = short_or_whole(10, 80)
_NOTE: Final = "context"


_FURTHER: Final[Sequence[tuple[Table, Mapping[str, Any]]]] = (
    (schema.program_runs, {"command": "run", "host": "h", "began_at": 1_795_200_000, "exit_code": 0, "done": "{}"}),
    (schema.notices, {"key": "store", "notified_at": 1_795_200_000}),
    (schema.file_marks, {"source_id": 1, "file": "a.log", "mark": '{"size":7}'}),
    (schema.grid_logs, {"source_id": 1, "cursor": "{}"}),
    (schema.grid_jobs, {"source_id": 1, "key": "k", "at": 1, "lrms_id": "7", "user_dn": "/CN=Ada", "fqans": "[]"}),
    (schema.reconciled_months, {"target_id": 1, "month": 202610, "differences": 1, "missing": 0, "differing": 1}),
    (schema.resends, {"target_id": 1, "begins": 1, "ends": 2, "only_missing": 1, "asked_at": 1_795_200_000}),
    (schema.usage_notes, {"run_id": select(func.min(schema.runs.c.id)).scalar_subquery(), "source_id": 1, "note": 1}),
)
"""Rows of kinds that the store has no object of."""


class Exported:
    """A store with something of nearly every kind, and its exports."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        unpack(ROOT / "fixtures" / "stores" / "0016" / "sqlite.tar.xz", folder)
        (file,) = folder.rglob("store.db")
        store = open_store(f"sqlite:///{file}")
        with store.write() as connection:
            for table, row in _FURTHER:
                connection.execute(insert(table).values(row))
        self.content = content_of(store)
        for form in FILE_FORMATS:
            export(store, folder / form, form)
        store.close()
        self._empty = folder / "empty.db"
        open_store(f"sqlite:///{self._empty}").close()

    def copied(self, form: str, folder: Path) -> Path:
        """A copy of the export in a format."""
        return shutil.copytree(self._folder / form, folder / "export")

    def empty_store(self, folder: Path) -> Store:
        return open_store(f"sqlite:///{shutil.copy(self._empty, folder / 'store.db')}")


def content_of(store: Store) -> Mapping[str, list[str]]:
    with store.read() as connection:
        return {kind: sorted(map(_text, all_of(connection, kind))) for kind in EXPORTED}


def _text(item: Object) -> str:
    return repr((item.key, sorted(item.values.items())))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(tmp_path_factory.mktemp("exported"))


def refusal(exported: Exported, export_: Path, folder: Path) -> PublisherError | None:
    """The error of the import. Without one, the imported store must have the content of the exported one, else none."""
    error: PublisherError | None = None
    with closing(exported.empty_store(folder)) as store:
        try:
            import_(store, export_)
        except (SpoolError, UsageError) as refused:
            error = refused
        if error is None:
            content = content_of(store)
            assert [kind for kind in EXPORTED if content[kind] != exported.content[kind]] == []
        else:
            with store.read() as connection:
                full = [table.name for table in metadata.sorted_tables if connection.execute(select(table)).first()]
            assert full == []
    if isinstance(error, SpoolError):
        assert str(export_) in error.message
        assert error.hint.startswith("Nothing was imported")
    return error


# --- damage at random


def _a_place(content: bytes, random_: random.Random) -> int:
    return random_.randrange(len(content)) if content else 0


def _bit(content: bytes, random_: random.Random) -> bytes:
    at = _a_place(content, random_)
    return content[:at] + bytes(byte ^ 1 << random_.randrange(8) for byte in content[at : at + 1]) + content[at + 1 :]


def _removed(content: bytes, random_: random.Random) -> bytes:
    at = _a_place(content, random_)
    return content[:at] + content[at + random_.randint(1, 20) :]


def _inserted(content: bytes, random_: random.Random) -> bytes:
    at = _a_place(content, random_)
    return content[:at] + random_.choice((b"0", b"x", b"\n", b"\0", b"\xff", b" ", b'"', b"\\N", b":")) + content[at:]


def _truncated(content: bytes, random_: random.Random) -> bytes:
    return content[: -random_.choice((1, 8, 100, len(content) or 1))]


def _another(characters: bytes) -> Callable[[bytes, random.Random], bytes]:
    """One of these characters is another of them."""

    def damaged(content: bytes, random_: random.Random) -> bytes:
        places = [at for at, byte in enumerate(content) if byte in characters]
        if not places:
            return content
        at = random_.choice(places)
        return content[:at] + bytes([random_.choice(characters)]) + content[at + 1 :]

    return damaged


def _line(edit: Callable[[list[bytes], int, random.Random], None]) -> Callable[[bytes, random.Random], bytes]:
    def damaged(content: bytes, random_: random.Random) -> bytes:
        lines = content.splitlines(keepends=True)
        if lines:
            edit(lines, random_.randrange(len(lines)), random_)
        return b"".join(lines)

    return damaged


def _swap(lines: list[bytes], at: int, random_: random.Random) -> None:
    other = random_.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


_DAMAGES: Final = (
    _bit, _removed, _inserted, _truncated, _another(b"0123456789"), _another(bytes(range(97, 123))),
    _line(lambda lines, at, _: lines.pop(at) and None),
    _line(lambda lines, at, random_: lines.insert(random_.randrange(len(lines)), lines[at])),
    _line(_swap),
)  # fmt: skip


def _damage(folder: Path, random_: random.Random) -> str:
    """Damage a file of an export, with each kind as likely as another; return what was done."""
    kinds = sorted({path.name.partition(".")[0] for path in folder.iterdir()})
    files: list[Path] = []
    while not files:
        kind = random_.choice(kinds)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and _kind_of(path, folder) == kind)
    file, other = random_.choice(files), random_.choice(files)
    choice = random_.randrange(12)
    if choice == 0:
        file.unlink()
    elif choice == 1:
        file.write_bytes(other.read_bytes())
    elif choice == 2 and file.parent != folder:
        shutil.copytree(file.parent, file.parent.with_name(f"{file.parent.name}0"))
    else:
        content = file.read_bytes()
        file.write_bytes(random_.choice(_DAMAGES)(content, random_))
    return f"{file.relative_to(folder)} {choice}"


def _kind_of(path: Path, folder: Path) -> str:
    return path.relative_to(folder).parts[0].partition(".")[0]


@pytest.mark.parametrize("case", range(5))
@pytest.mark.parametrize("form", FILE_FORMATS)
def test_a_damaged_export_is_refused_or_imported_as_it_was(
    tmp_path: Path, exported: Exported, form: str, case: int
) -> None:
    refused = 0
    for seed in range(case * _DAMAGES_OF_CASE, (case + 1) * _DAMAGES_OF_CASE):
        folder = tmp_path / str(seed)
        folder.mkdir()
        place = exported.copied(form, folder)
        what = _damage(place, random.Random(f"{form} {seed}"))
        try:
            refused += refusal(exported, place, folder) is not None
        except BaseException as error:
            error.add_note(f"{form}, seed {seed}: {what}")
            raise
        shutil.rmtree(folder)
    assert refused > 1


# --- damage that was imported, or ended otherwise


_EDITS: Final = {
    "an attribute has another name": (
        "deliveries.jsonl", '"sent_digest"', '"ent_digest"', r"deliveries.jsonl:\d+: .* unknown field `ent_digest`"
    ),
    "an amount": ("energies.jsonl", '"energy_mj":', '"energy_mj":9', "energies: a value, or a key, is not what was"),
    "a purged job": ("purged_runs.jsonl", '"run":"', '"run":"00', "purged_runs: a value, or a key"),
    "a key": ("audit.jsonl", '"key":"1"', '"key":"99"', "audit: a value, or a key"),
    "a part of a job": (
        "jobs.jsonl", '"events":[{"at"', '"events":[{"ad"', r"jobs.jsonl:\d+: .* field `ad` - at `\$.values.events"
    ),
    "a type": ("deliveries.jsonl", '"state":"', '"state":7,"x":"', r"deliveries.jsonl:\d+: .*Expected `str`"),
    "a number without end": ("messages.jsonl", '"created_at":1', f'"created_at":{"1" * 40}', "messages: "),
    "a required value": ("messages.jsonl", '"created_at":1', '"closed_at":1', "messages: .*NOT NULL"),
    "a reference": ("deliveries.jsonl", '"target":"', '"target":"x', "deliveries .*: its target 'x.*' is not in the"),
    "an object without values": ("messages.jsonl", '"values":{', '"values":null}\n{"key":"","values":{', "messages: "),
    "no object": ("counters.jsonl", "{", "", r"counters.jsonl:1: the line is not an object: "),
    "the sum": (_NOTE, '"deliveries": "', '"deliveries": "1', "deliveries: a value, or a key"),
    "no sums": (_NOTE, '"sums"', '"sum"', "sources: a value, or a key"),
}  # fmt: skip


@pytest.mark.parametrize("edit", _EDITS.values(), ids=_EDITS)
def test_what_is_altered_is_refused(tmp_path: Path, exported: Exported, edit: tuple[str, str, str, str]) -> None:
    name, before, after, message = edit
    place = exported.copied("json-lines", tmp_path)
    text = (place / name).read_text("utf-8")
    assert before in text
    (place / name).write_text(text.replace(before, after, 1), "utf-8")
    error = refusal(exported, place, tmp_path)
    assert error is not None
    assert re.search(message, error.message)


def test_a_repeated_line_is_a_fault_of_the_export(tmp_path: Path, exported: Exported) -> None:
    place = exported.copied("json-lines", tmp_path)
    first, *others = (place / "unreadable.jsonl").read_bytes().splitlines(keepends=True)
    (place / "unreadable.jsonl").write_bytes(first + first + b"".join(others))
    error = refusal(exported, place, tmp_path)
    assert error is not None
    assert "unreadable: an object is there twice" in error.message


def test_a_file_that_was_cut_is_named(tmp_path: Path, exported: Exported) -> None:
    place = exported.copied("classic", tmp_path)
    file = min((place / "deliveries").rglob("object"))
    file.write_bytes(file.read_bytes()[:-8])
    error = refusal(exported, place, tmp_path)
    assert error is not None
    assert f"{file}: its last line is incomplete" in error.message


def test_a_note_that_is_not_text_is_not_an_export(tmp_path: Path, exported: Exported) -> None:
    place = exported.copied("json-lines", tmp_path)
    (place / _NOTE).write_bytes(b"\xff")
    assert isinstance(refusal(exported, place, tmp_path), UsageError)


def test_each_format_has_the_same_sums(exported: Exported, tmp_path: Path) -> None:
    manifests = [read_manifest(exported.copied(form, tmp_path / form)) for form in FILE_FORMATS]
    assert manifests[0].sums.keys() == set(EXPORTED)
    assert all(manifest.sums == manifests[0].sums for manifest in manifests)


def test_another_form_of_export_is_not_taken_for_another_store(exported: Exported, tmp_path: Path) -> None:
    note = exported.copied("json-lines", tmp_path) / _NOTE
    note.write_text(note.read_text(encoding="utf-8").replace('"version": 1', '"version": 2'), encoding="utf-8")
    with pytest.raises(UsageError, match="was exported in form 2; this program imports 1"):
        read_manifest(note.parent)


def test_a_sum_is_the_same_with_every_version_of_the_program() -> None:
    objects = Summed([ITEM, Object("audit", "1", {"at": 1.0, "raw": b"\xff", "big": 1e300, "n": None})])
    assert len(list(objects)) == objects.count == 2
    assert f"{objects.sum:x}" == "1c0a959f727add3d2bd46fddab218ca5a"
