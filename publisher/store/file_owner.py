"""Who owns the file of a store: root must not make files that the service cannot open."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Final

from publisher.errors import StoreError

SERVICE_USER: Final = "usage-publisher"
"""The user of the units in `conf/systemd`."""
_ROOT: Final = 0


def require_owner(file: Path, user_id: int | None = None) -> None:
    """Raise `StoreError` if root would work in a store, or in a folder for one, of another user.

    Not only the store: its mark, its locks, spooling contexts, and queues would belong to root, and the service could
    not write them. `user_id`: by default that of this process.
    """
    owner = owner_of(file)
    if is_foreign(file, user_id):
        raise StoreError(
            f"the store {file} is that of the user {name_of(owner)}, who could not open what root writes there",
            hint=f"Run this as that user: {as_user(name_of(owner))} usage-publisher ...",
        )


def is_foreign(file: Path, user_id: int | None = None) -> bool:
    """Whether root is at work at the store of another user."""
    return (os.geteuid() if user_id is None else user_id) == _ROOT and owner_of(file) != _ROOT


def owner_of(file: Path) -> int:
    """The user id of the owner of a file or, if it does not exist, of the folder in which it will be."""
    for place in (file, *file.absolute().parents):
        try:
            return place.stat().st_uid
        except OSError:
            continue
    return _ROOT


def name_of(user_id: int) -> str:
    """The name of a user, or the number."""
    try:
        return pwd.getpwuid(user_id).pw_name
    except KeyError:
        return str(user_id)


def as_user(name: str) -> str:
    """The beginning of a command that root runs as another user."""
    return f"runuser -u {name} --"
