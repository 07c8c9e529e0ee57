"""Taking out of the columns what was erased from the store, also where no report can be made."""

from __future__ import annotations

import shutil

from publisher.config.schema import Config
from publisher.errors import OutputError
from publisher.report.column_place import column_place
from publisher.store.database import Store


def remove_erased(store: Store, config: Config) -> None:
    """Take out of the columns what is not in the store any more. Without the libraries of reports, remove the folder.

    Raises `StoreError` and its kinds, and `OutputError`; what is left is then removed before the next report.
    """
    place = column_place(store, config)
    if place is None or not place.is_dir():
        return
    try:
        from publisher.report.tables import bring_up_to_date  # noqa: PLC0415 - loads DuckDB and Arrow
    except ModuleNotFoundError:
        try:
            shutil.rmtree(place)
        except OSError as error:
            raise OutputError(
                f"the columns in {place} cannot be removed: {error.strerror}",
                hint="Remove the folder: it has what was erased from the store",
            ) from error
    else:
        bring_up_to_date(store, config)
