"""The longest texts of a run that a source accepts.

A text that identifies a user or account, or distinguishes runs, is never cut, so that two of them cannot become one: a
run with a longer one is unreadable. Other texts are cut, and the run notes it under `SHORTENED` in its extras. The
limits exceed those of all receivers (`formats.rules`: at most 2,500 characters), so no real run meets them.
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
"""The most values besides the fields of a run."""

SHORT_BYTES: Final = IDENTITY_CHARACTERS // 4
"""A run that was read from so many bytes has no text that is too long: a byte becomes at most four characters."""

SHORTENED: Final = "shortened"

IDENTITIES: Final = (
    "record_id", "global_id", "local_id", "array_id", "user_dn", "token_subject", "token_issuer", "local_user",
    "local_group", "vo", "vo_issuer", "project", "account", "department", "cluster", "queue", "parallel_environment",
    "endpoint_url", "endpoint_type", "client_host", "infrastructure", "lrms", "middleware", "middleware_version",
)  # fmt: skip
TEXTS: Final = ("name", "service_class", "system_software", "end_reason")

_OURS: Final = frozenset({"pe_tasks", "act_lines"})
"""Extras that sources make from lines with bounded texts."""
_KEY_CHARACTERS: Final = 1_024
_identities: Final = attrgetter(*IDENTITIES)
_texts: Final = attrgetter(*TEXTS)


class LimitError(LineError):
    """A text that must not be cut is too long; the message names the field."""


def bounded(job: Job) -> Job:
    """The run with all texts within their limits. Raises `LimitError`."""
    for name, value in zip(IDENTITIES, _identities(job), strict=True):
        if value is not None and len(value) > IDENTITY_CHARACTERS:  # a call for each would take as long as the rest
            require_short(name, value)
    for fqan in job.fqans:
        require_short("FQAN", fqan)
    for group in job.token_groups or ():
        require_short("token group", group)
    for host in job.hosts:
        require_short("host", host.name)
    changes: dict[str, Any] = {}
    notes: list[str] = []
    for name, value in zip(TEXTS, _texts(job), strict=True):
        if value is not None and len(value) > TEXT_CHARACTERS:
            changes[name] = value[:TEXT_CHARACTERS]
            notes.append(_note(name, value))
    environments = job.runtime_environments
    if any(len(environment) > TEXT_CHARACTERS for environment in environments):
        changes["runtime_environments"] = tuple([environment[:TEXT_CHARACTERS] for environment in environments])
        notes += [
            _note("runtime_environments", environment)
            for environment in environments
            if len(environment) > TEXT_CHARACTERS
        ]
    if any(len(transfer.url) > TEXT_CHARACTERS for transfer in job.transfers):
        changes["transfers"] = tuple(
            [msgspec.structs.replace(transfer, url=transfer.url[:TEXT_CHARACTERS]) for transfer in job.transfers]
        )
        notes += [
            _note("URL of a transfer", transfer.url)
            for transfer in job.transfers
            if len(transfer.url) > TEXT_CHARACTERS
        ]
    extras = _extras(job.extras, notes)
    if not notes:
        return job
    return msgspec.structs.replace(job, **changes, extras={**extras, SHORTENED: "; ".join(notes)[:TEXT_CHARACTERS]})


def require_short(name: str, value: str | None) -> None:
    """Raises `LimitError` if a text that must not be cut is too long."""
    if value is not None and len(value) > IDENTITY_CHARACTERS:
        raise LimitError(f"{name} has {len(value)} characters; at most {IDENTITY_CHARACTERS} are read")


def _extras(extras: dict[str, int | float | str], notes: list[str]) -> dict[str, int | float | str]:
    """The extras, with long values cut and a note of each; values beyond the allowed number are omitted."""
    kept: dict[str, int | float | str] = {}
    for key, value in extras.items():
        if len(kept) >= EXTRAS:
            notes.append(f"{len(extras) - len(kept)} more values are omitted")
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
