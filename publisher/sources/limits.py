"""How long the texts of a run may be: what a source lets in.

A text that names who or what is charged, or that tells runs apart, is never cut, so that no two of them become one: a
run with a longer one is not a record, and listed. Other texts are cut, and the run says so under `SHORTENED` in its
extras. The limits are beyond what any receiver takes (`formats.rules`: 2,500 characters at most), so no real run meets
them.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.sources.fields import LineError

IDENTITY_CHARACTERS: Final = 4_096
TEXT_CHARACTERS: Final = 16_384
EXTRA_CHARACTERS: Final = 65_536
EXTRAS: Final = 4_096
"""Values beside the fields of a run."""

SHORT_BYTES: Final = IDENTITY_CHARACTERS // 4
"""A run that was read from so many bytes holds no text that is too long: a byte becomes four characters at most."""

SHORTENED: Final = "shortened"

IDENTITIES: Final = (
    "record_id", "global_id", "local_id", "array_id", "user_dn", "token_subject", "token_issuer", "local_user",
    "local_group", "vo", "vo_issuer", "project", "account", "department", "cluster", "queue", "parallel_environment",
    "endpoint_url", "endpoint_type", "client_host", "infrastructure", "lrms", "middleware", "middleware_version",
)  # fmt: skip
TEXTS: Final = ("name", "service_class", "system_software", "end_reason")

_OURS: Final = frozenset({"pe_tasks", "act_lines"})
"""Extras that sources make of lines whose own texts are bounded."""
_KEY_CHARACTERS: Final = 1_024
_identities: Final = attrgetter(*IDENTITIES)
_texts: Final = attrgetter(*TEXTS)


class LimitError(LineError):
    """A text that must not be cut is too long; the message names the field."""


def bounded(job: Job) -> Job:
    """The run with no text beyond its limit. Raises `LimitError`."""
    for name, value in zip(IDENTITIES, _identities(job), strict=True):
        require_short(name, value)
    for fqan in job.fqans:
        require_short("FQAN", fqan)
    for host in job.hosts:
        require_short("host", host.name)
    changes: dict[str, Any] = {}
    notes: list[str] = []
    for name, value in zip(TEXTS, _texts(job), strict=True):
        if value is not None and len(value) > TEXT_CHARACTERS:
            changes[name] = value[:TEXT_CHARACTERS]
            notes.append(_note(name, value))
    environments = job.runtime_environments
    if any(len(each) > TEXT_CHARACTERS for each in environments):
        changes["runtime_environments"] = tuple([each[:TEXT_CHARACTERS] for each in environments])
        notes += [_note("runtime_environments", each) for each in environments if len(each) > TEXT_CHARACTERS]
    if any(len(each.url) > TEXT_CHARACTERS for each in job.transfers):
        changes["transfers"] = tuple(
            [msgspec.structs.replace(each, url=each.url[:TEXT_CHARACTERS]) for each in job.transfers]
        )
        notes += [_note("URL of a transfer", each.url) for each in job.transfers if len(each.url) > TEXT_CHARACTERS]
    extras = _extras(job.extras, notes)
    if not notes:
        return job
    return msgspec.structs.replace(job, **changes, extras={**extras, SHORTENED: "; ".join(notes)[:TEXT_CHARACTERS]})


def require_short(name: str, value: str | None) -> None:
    """Raises `LimitError` for a text that must not be cut and is too long."""
    if value is not None and len(value) > IDENTITY_CHARACTERS:
        raise LimitError(f"{name} has {len(value)} characters; at most {IDENTITY_CHARACTERS} are read")


def _extras(extras: dict[str, int | float | str], notes: list[str]) -> dict[str, int | float | str]:
    """The extras with what is too long cut, and a note of each; those beyond the number are left out."""
    kept: dict[str, int | float | str] = {}
    for key, value in extras.items():
        if len(kept) >= EXTRAS:
            notes.append(f"{len(extras) - len(kept)} more values are left out")
            break
        name, text = key[:_KEY_CHARACTERS], value
        if name != key:
            notes.append(_note(f"{name[:40]}...", key))
        if isinstance(value, str) and len(value) > EXTRA_CHARACTERS and key not in _OURS:
            text = value[:EXTRA_CHARACTERS]
            notes.append(_note(name, value))
        kept[name] = text
    return kept


def _note(name: str, value: str) -> str:
    return f"{name} ({len(value)} characters)"
