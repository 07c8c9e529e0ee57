"""store rename-source: another name for a source whose jobs are stored, since its table in the configuration has one.

Jobs belong to a source by its number, and record ids do not contain its name: nothing is sent again. Without this, the
stored jobs would lose the settings of their source (benchmark, mapping rules, site), and be held.
"""

from __future__ import annotations

from typing import Any

import msgspec
from sqlalchemy import Connection, and_, select, update

from publisher.errors import UsageError
from publisher.store import changes, named_rows, registry
from publisher.store.schema import earlier_settings, notices, sources, targets
from publisher.store.stored_json import read_with


def rename_source(connection: Connection, before: str, after: str, now: int) -> int:
    """Rename a source wherever the store has its name; return how many of its jobs were ever stored.

    Needs a writing transaction. Raises `UsageError` if there is no such source, or one with the new name, and
    `StoreCorruptError`.
    """
    row = registry.get_source(connection, before)
    if row is None:
        known = ", ".join(registry.count_by_source(connection)) or "none"
        raise UsageError(f"the store has no source {before}; it has: {known}")
    if registry.get_source(connection, after) is not None:
        raise UsageError(
            f"a source {after} was read already, and two sources cannot become one",
            hint=f"Keep the table of {before} in the configuration too, with `retired = true`",
        )
    connection.execute(update(sources).where(sources.c.id == row.id).values(name=after))
    named_rows.seal(connection, sources, after)
    changes.note_classes(connection)
    for target in list(connection.execute(select(targets.c.name).order_by(targets.c.id)).scalars()):
        _rename_in_target(connection, target, before, after)
    for key in list(connection.execute(select(notices.c.key)).scalars()):
        if key.startswith(f"source {before}:"):
            registry.forget_notices(connection, [key])  # a problem that lasts is reported under the new name
    registry.record_action(connection, "rename source", after, f"was {before}", now)
    return row.jobs


def _rename_in_target(connection: Connection, name: str, before: str, after: str) -> None:
    """The settings that the deliveries of a target follow, and the sources that an earlier publisher delivered."""
    row = registry.get_target(connection, name)
    if row is None:
        return
    values: dict[str, Any] = {"filter_settings": _renamed(row.filter_settings, before, after)}
    for last_batch_id, text in registry.settings_before(connection, row.id):
        mine = and_(earlier_settings.c.target_id == row.id, earlier_settings.c.last_batch_id == last_batch_id)
        connection.execute(update(earlier_settings).where(mine).values(settings=_renamed(text, before, after)))
    if row.assumes is not None:
        assumed = [after if source == before else source for source in row.assumes]
        values["assumes"] = msgspec.json.encode(assumed).decode()
    connection.execute(update(targets).where(targets.c.id == row.id).values(values))
    named_rows.seal(connection, targets, name)


def _renamed(text: str, before: str, after: str) -> str:
    """The settings of a target with another name of a source."""
    settings: dict[str, Any] = read_with(msgspec.json.decode, text, "the settings of a target")
    of_sources = settings["sources"]
    if before in of_sources:
        of_sources[after] = of_sources.pop(before)
    chosen = settings["target"].get("sources") or []
    settings["target"]["sources"] = [after if source == before else source for source in chosen]
    return msgspec.json.encode(settings, order="deterministic").decode()
