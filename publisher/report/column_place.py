"""Where the columns of a store are, and taking out of them what was erased, also where no report can be made."""

from __future__ import annotations

import os
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Final

from publisher.config.schema import Config
from publisher.errors import OutputError
from publisher.store.database import Store

_STATE_FOLDER: Final = Path("/var/lib/usage-publisher")


def column_place(store: Store, config: Config) -> Path | None:
    """The folder of the columns; None: for a store on a server, on a host without a folder for them."""
    if config.store.columns is not None:
        return config.store.columns
    if store.file is not None:
        return store.file.with_name(f"{store.file.name}.columns")
    if os.access(_STATE_FOLDER, os.W_OK | os.X_OK):
        return _STATE_FOLDER / f"columns-{blake2b(store.place.encode(), digest_size=8).hexdigest()}"
    return None


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
