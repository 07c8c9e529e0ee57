"""check: everything that a run will need, tested, with what to do about it. No records are sent."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import msgspec

from publisher.config import Config
from publisher.credentials import load_credentials, rfc2253_dn, slash_dn
from publisher.errors import PublisherError
from publisher.finding import Finding, Level
from publisher.pipeline import check_site, check_trust
from publisher.pipeline.check_rules import colliding_ids, reading_the_same, unused_rules
from publisher.pipeline.check_wishes import wishes
from publisher.pipeline.status import status
from publisher.pipeline.viewing import view_of
from publisher.sources import grid_log, known_kinds, make_source
from publisher.store.database import Store
from publisher.targets import make_target
from publisher.targets.context import TargetContext

_FEW_DAYS = 30
_LITTLE_SPACE_BYTES = 200 * 1024 * 1024
_NO_SPACE_BYTES = 20 * 1024 * 1024


def check(config: Config, store: Callable[[], Store | None], clock: Callable[[], int]) -> list[Finding]:
    """One finding for each thing; those that cannot be looked at are red with the reason.

    Raises `ConfigError` for a type of source that is not known: there is nothing to look at then.
    """
    kinds = known_kinds()
    for name, settings in config.sources.items():
        if settings.type not in kinds:
            make_source(name, settings)
    return [
        *_configuration(config),
        *_store(config, store),
        *_credentials(config, clock()),
        *check_trust.trust(config, clock()),
        *_sources(config),
        *check_site.zones(config),
        *_targets(config),
        *colliding_ids(config),
        *reading_the_same(config),
        *_stored(config, store, clock()),
    ]


def _configuration(config: Config) -> Iterator[Finding]:
    yield Finding("configuration", "green", f"{config.file} is understood; the site is {config.site.name}")
    if not config.sources:
        yield Finding("configuration", "red", "no source is configured", "Add a table [sources.NAME]")
    if not config.targets:
        yield Finding("configuration", "red", "no target is configured", "Add a table [targets.NAME]")


def _store(config: Config, store: Callable[[], Store | None]) -> Iterator[Finding]:
    try:
        opened = store()
    except PublisherError as error:
        yield Finding("store", "red", error.message, error.hint)
        return
    if opened is None:
        yield Finding("store", "yellow", f"{config.store.url} does not exist yet", "The first collect makes it")
        return
    yield Finding("store", "green", f"{opened.place} can be read")
    if opened.file is not None:
        space = os.statvfs(opened.file)
        free = space.f_bavail * space.f_frsize
        level: Level = "red" if free < _NO_SPACE_BYTES else "yellow" if free < _LITTLE_SPACE_BYTES else "green"
        hint = "Free some: a run that cannot write its state sends nothing" if level != "green" else ""
        yield Finding("store", level, f"{free // (1024 * 1024)} MiB are free beside it", hint)


def _credentials(config: Config, now: int) -> Iterator[Finding]:
    settings = {"common": config.credentials}
    settings |= {name: target.credentials for name, target in config.targets.items() if target.credentials is not None}
    for name, given in settings.items():
        if given.certificate is None or given.key is None:
            continue
        subject = f"credentials ({name})"
        try:
            loaded = load_credentials(given.certificate, given.key, now_s=time.time())
        except PublisherError as error:
            yield Finding(subject, "red", error.message, error.hint)
            continue
        days = int((loaded.expires_s - now) // 86400)
        level: Level = "yellow" if days < _FEW_DAYS else "green"
        yield Finding(
            subject, level, f"certificate and key fit; {days} days left", "Renew it" if days < _FEW_DAYS else ""
        )
        subject_name = loaded.certificate.subject
        yield Finding(
            subject,
            "green",
            f"its name is {slash_dn(subject_name)} or {rfc2253_dn(subject_name)}",
            "SGAS: among the authorised names; APEL: the glite-APEL endpoint in GOCDB",
        )


def _sources(config: Config) -> Iterator[Finding]:
    for name, settings in config.sources.items():
        try:
            for finding in make_source(name, settings).check():
                about = f"source {name}"
                yield msgspec.structs.replace(finding, subject=about) if finding.subject == name else finding
            if settings.grid_log is not None:
                yield grid_log.check(name, settings.grid_log.path)
        except PublisherError as error:
            yield Finding(f"source {name}", "red", error.message, error.hint)


def _targets(config: Config) -> Iterator[Finding]:
    for name, settings in config.targets.items():
        try:
            view_of(settings, config)
            target = make_target(name, settings, TargetContext(config.credentials, time.time))
            try:
                yield from target.check()
            finally:
                target.close()
        except PublisherError as error:
            yield Finding(f"target {name}", "red", error.message, error.hint)


def _stored(config: Config, store: Callable[[], Store | None], now: int) -> Iterator[Finding]:
    """What can be said of what is in the store."""
    try:
        opened = store()
    except PublisherError:
        opened = None  # told with the store
    try:
        yield from check_site.modes(config, opened)
        if opened is not None:
            yield from check_site.collected(config, opened, now)
            yield from check_site.targets(config, opened, now)
            yield from check_site.machine_names(config, opened)
            yield from wishes(config, opened, status(opened, config, lambda: now, assumed=False))
            yield from unused_rules(config, opened)
    except PublisherError as error:
        yield Finding("rules", "red", error.message, error.hint)
