"""Where the columns of a store are."""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Final

from publisher.config.schema import Config
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
