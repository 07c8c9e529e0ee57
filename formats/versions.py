"""The versions of each format that can be sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from formats.rules import MESSAGE_TYPES
from formats.utilization.report import VERSIONS as REPORT_VERSIONS

VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "ogf-ur": ("1.0",),
    "emi-car": ("1.2",),
    "utilization": REPORT_VERSIONS,
    **{
        name: tuple(known.version for known in MESSAGE_TYPES if known.name == name)
        for name in dict.fromkeys(known.name for known in MESSAGE_TYPES)
    },
}
"""By the name of the format."""


def require_version(name: str, version: str) -> None:
    """Raise `ValueError`, with the versions it has, for a version that a format has not.

    `v0.2` is `0.2`, and an empty version is the format's default. Formats of add-ons judge theirs themselves.
    """
    known = VERSIONS.get(name, ())
    plain = version.removeprefix("v") if version[1:2].isdigit() else version
    if known and version and plain not in known:
        raise ValueError(f"{name} has no version {version!r}; it has {' and '.join(known)}")
