"""Jobs of an HTCondor-CE and their routed copies, whose ads come in any order in its history.

The copy has the batch system's id, the job as it was submitted has the token. HTCondor-CE renames `AuthToken...` to
`orig_AuthToken...` in the copy. Those are not read: a user may set any `orig_...` in an ad, and the CE replaces only
those that the token has. Only the schedd writes `AuthToken...` (`SYSTEM_SECURE_JOB_ATTRS`).

The CE's job router writes the id of the other one into both. A user can write it into one only, so both must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from publisher.grid_identity import GridLogEntry
from publisher.sources.htcondor.ad import Value, grid_entry, routed_ids, token_of

_T = TypeVar("_T")
_MOST: Final = 1_000
"""Both ads leave the queue within minutes. Where the other one never comes, the oldest are forgotten."""


class RoutedJobs(msgspec.Struct):
    """The copies without a user, and the tokens of jobs, whose other ad has not come; by the ids of job and copy."""

    copies: dict[str, GridLogEntry] = {}
    tokens: dict[str, tuple[str, str | None, tuple[str, ...] | None]] = {}

    def entry(self, ad: Mapping[str, Value]) -> GridLogEntry | None:
        """The entry that an ad completes; None: it completes none. Raises `LineError`."""
        entry = grid_entry(ad)
        if entry is not None and (entry.user_dn or entry.fqans or entry.token_subject):
            return entry
        own, job, copy = routed_ids(ad)
        if entry is not None:
            key = f"{job} {own}"
            token = self.tokens.pop(key, None)
            if token is None:
                _keep(self.copies, key, entry)
        else:
            token = token_of(ad) if copy is not None else None
            key = f"{own} {copy}"
            entry = self.copies.pop(key, None) if token is not None else None
            if token is not None and entry is None:
                _keep(self.tokens, key, token)
        if entry is None or token is None:
            return None
        subject, issuer, groups = token
        return msgspec.structs.replace(entry, token_subject=subject, token_issuer=issuer, token_groups=groups)


def _keep(halves: dict[str, _T], key: str, half: _T) -> None:
    halves[key] = half
    if len(halves) > _MOST:
        del halves[next(iter(halves))]
