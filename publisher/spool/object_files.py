"""Contexts with files for each object, in a folder for each kind."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path

from publisher.spool.base import Kind, Object, SpoolError
from publisher.spool.files import FolderContext, errors_named, make_folder, name_of


class ObjectFiles(FolderContext, ABC):
    """Base of such contexts: see `publisher.spool.context`. A layout has the suffix of the objects' files, and texts by
    part; that of the object itself has no part name."""

    @abstractmethod
    def texts_of(self, kind: Kind, item: Object) -> Mapping[str, str]:
        """The texts of an object; a part without subordinate objects has none."""
        ...

    @abstractmethod
    def object_of(self, kind: Kind, texts: Mapping[str, str]) -> Object:
        """The object with these texts. Raises `ValueError` and `KeyError`."""
        ...

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Nothing to do: removed objects leave nothing."""

    def clear(self, kind: Kind) -> None:
        """Remove the folder of the kind with all its contents."""
        with errors_named(self.path):
            if self._folder(kind).exists():
                shutil.rmtree(self._folder(kind))

    def make_place(self, kind: Kind) -> None:
        """Create the folder of the kind."""
        with errors_named(self.path):
            make_folder(self._folder(kind))

    def has_place(self, kind: Kind) -> bool:
        """Whether the folder of the kind exists."""
        with errors_named(self.path):
            return self._folder(kind).is_dir()

    def count(self, kind: Kind) -> int:
        """By the names of the files."""
        with errors_named(self.path):
            return sum(1 for _ in self._files(kind))

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Write subordinate objects first, so that a new object exists only when it is complete."""
        file, texts = self._file(kind, item.key), self.texts_of(kind, item)
        written = False
        for part in self.part_files(kind):
            if part in texts:
                written |= self.replace(file.with_name(part), texts[part])
            elif file.with_name(part).exists():
                self.remove(file.with_name(part))
                written = True
        return self.replace(file, texts[""]) or written

    def delete_object(self, kind: Kind, key: str) -> None:
        """Remove the object first, then its subordinate objects."""
        file = self._file(kind, key)
        for name in (file.name, *self.part_files(kind)):
            self.remove(file.with_name(name))

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """In the order of the files."""
        with errors_named(self.path):
            files = sorted(self._files(kind))
        for file in files:
            if (item := self._read(kind, file)) is not None:
                yield item

    def _read(self, kind: Kind, file: Path) -> Object | None:
        content = self.read(file)
        if content is None:
            return None
        parts = {part: self.read(file.with_name(part)) for part in self.part_files(kind)}
        contents = {"": content} | {part: rows for part, rows in parts.items() if rows is not None}
        try:
            return self.object_of(kind, {part: content.decode() for part, content in contents.items()})
        except KeyError as error:
            raise SpoolError(f"{file}: unknown or missing {error}") from None
        except ValueError as error:
            raise SpoolError(f"{file}: {error}") from None

    def _folder(self, kind: Kind) -> Path:
        return self.path / kind.name

    def _files(self, kind: Kind) -> Iterator[Path]:
        return self._folder(kind).glob(f"??/*{self.suffix}")

    def _file(self, kind: Kind, key: str) -> Path:
        """In one of 256 folders, so that none has too many files."""
        part = blake2b(key.encode(), digest_size=1).hexdigest()
        return Path(f"{self._folder(kind)}/{part}/{name_of(key)}{self.suffix}")
