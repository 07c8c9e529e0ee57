"""An id that was sent stays as it was sent: settings that are in a service's key cannot change under delivered records.

SGAS keeps one record for each record id, APEL one job record for each site, local id and end (facts on formats, 4.8).
If a setting in that key changed, what was delivered would be counted again under the new key at its next correction or
republish. Summaries and sync counts need no guard: a group whose key changed is sent with zero jobs. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from publisher.errors import ConfigError

_TARGET_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "ogf-ur": frozenset({"record_id_prefix"}),
    "emi-car": frozenset({"local_id_prefix"}),
    "apel-job": frozenset({"local_id_prefix"}),
}
_SOURCE_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "emi-car": frozenset({"site", "local_id_prefix", "end_time"}),
    "apel-job": frozenset({"site", "local_id_prefix", "end_time"}),
}
_WITH_SITE: Final = frozenset({"emi-car", "apel-job"})


def keys_of(wishes: str) -> dict[str, Any]:
    """The settings in the service's key, by their place in the configuration, of a target's wishes as stored."""
    told = msgspec.json.decode(wishes)
    records = told["target"]["records"]
    found: dict[str, Any] = {f"target.{name}": told["target"].get(name) for name in _TARGET_KEYS.get(records, ())}
    if records in _WITH_SITE:
        found["site.name"] = told["site"]
    for source, settings in told["sources"].items():
        for name in sorted(_SOURCE_KEYS.get(records, frozenset()) & settings.keys()):  # older stores do not tell all
            found[f"sources.{source}.{name}"] = settings[name]
    return found


def require_same_keys(target: str, before: str, now: str, delivered: int) -> None:
    """Raise `ConfigError`, with the number of records it would double, if a setting in the key changed.

    A source that is new or gone changes no key of what was delivered; neither does another format, which is another
    kind of record.
    """
    if not delivered:
        return
    old, new = keys_of(before), keys_of(now)
    for place, value in new.items():
        if place in old and old[place] != value:
            key = place.replace("target.", f"targets.{target}.", 1)
            raise ConfigError(
                f"was {old[place]!r} when {delivered} records were delivered to {target}, and is {value!r} now: they "
                "would be counted twice",
                key=key,
                hint="Put it back; for what is still to come make a new target, with `since` where this one ends",
            )
