"""Files by resource and UTC day, such as RESOURCE-2026-11-20.log, which another program reads once.

Promise kept here: a record is in one file, and a file that has appeared never changes. A message that is sent again,
after a kill or by request, may be in a file already: its records are left out by their record ids. What ended on a day
whose file was written before goes into a further file of the day: RESOURCE-2026-11-20.2.log.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping

from formats.base import FILE_SUFFIXES, Format
from publisher.targets.base import Message
from publisher.targets.message_files import messages_of, write_once

_READ: int = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class DailyFiles:
    """The files of one format in a directory, which is given as an open descriptor."""

    def __init__(self, form: Format) -> None:
        assert form.file_of is not None  # the settings require it
        assert form.record_id_of is not None
        self._file_of, self._record_id_of = form.file_of, form.record_id_of
        self._suffix = FILE_SUFFIXES[form.content_type]

    def write(self, directory: int, message: Message) -> Mapping[str, str]:
        """Write the records of a message that are in no file yet; return the receipt. Raises `OSError`."""
        by_file: dict[str, list[bytes]] = {}
        for line in message.payload.removesuffix(b"\n").split(b"\n"):
            by_file.setdefault(self._file_of(line), []).append(line)
        places = self._places(directory, by_file, frozenset(message.sent_before))
        names: list[str] = []
        for stem, lines in by_file.items():
            new = [line for line in lines if self._record_id_of(line) not in places]
            names += [places[record_id] for line in lines if (record_id := self._record_id_of(line)) in places]
            if new:
                names.append(write_once(directory, stem, self._suffix, b"\n".join(new) + b"\n"))
        first, *others = dict.fromkeys(names)
        return {"file": first, **{f"file {number}": name for number, name in enumerate(others, 2)}}

    def _places(self, directory: int, stems: Collection[str], sent_before: Collection[str]) -> dict[str, str]:
        """By record id: the file that has it. All files of these days are read; those of other days only for records
        of which another version, with another end, may have been sent."""
        places: dict[str, str] = {}
        for name in messages_of(directory):
            if not name.endswith(self._suffix):
                continue
            is_of_day = any(name.startswith((stem + self._suffix, stem + ".")) for stem in stems)
            if is_of_day or sent_before:
                ids = self._record_ids(directory, name)
                places.update((each, name) for each in ids if is_of_day or each in sent_before)
        return places

    def _record_ids(self, directory: int, name: str) -> Iterator[str]:
        try:
            descriptor = os.open(name, _READ, dir_fd=directory)
        except FileNotFoundError:  # taken away meanwhile
            return
        with os.fdopen(descriptor, "rb") as lines:
            yield from map(self._record_id_of, lines)
