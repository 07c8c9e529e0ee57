"""backup: a consistent copy of the store's file beside a publisher at work, looked through before it gets its name."""

from __future__ import annotations

from pathlib import Path

import msgspec
from sqlalchemy import func, select

from publisher.errors import StoreCorruptError, UsageError
from publisher.store import integrity, upkeep
from publisher.store.database import Store
from publisher.store.tables import deliveries, runs


class Backup(msgspec.Struct, frozen=True):
    """A backup that was found good."""

    file: Path
    bytes: int
    runs: int
    deliveries: int


def backup(store: Store, file: Path) -> Backup:
    """Write a backup, of mode 0600, and verify it. A kill leaves nothing under its name.

    Raises `UsageError` where something has this name, and for a store on a server, naming the command for it;
    `StoreFullError` where the disk is full; `StoreCorruptError` where what was copied is damaged.
    """
    file = file.absolute()
    if file.exists() or file.is_symlink():
        raise UsageError(f"there is something at {file} already", hint="A backup replaces nothing; name a new file")
    store.back_up(file)
    part = upkeep.part_of(file)
    try:
        with upkeep.reading_file(part) as connection:
            wrong = upkeep.damage(connection)
            wrong += [f"counter of {each.target} ({each.word})" for each in integrity.miscounted(connection)]
            count = connection.execute(select(func.count()).select_from(runs)).scalar_one()
            owed = connection.execute(select(func.count()).select_from(deliveries)).scalar_one()
        _require_sound(wrong)
        size = part.stat().st_size
        upkeep.finish_backup(file)
    except BaseException:
        upkeep.remove_file(part)
        raise
    return Backup(file, size, count, owed)


def _require_sound(wrong: list[str]) -> None:
    if wrong:
        raise StoreCorruptError(
            f"the store is damaged, and so is its backup, which was not kept: {'; '.join(wrong)}",
            hint="`usage-publisher store check` says what to do",
        )
