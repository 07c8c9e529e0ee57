"""check of this host: file modes, time zones, freshness of sources, names at SGAS, authorities and revocation lists.

Every certificate of an authority whose revocation list has expired is refused, so a list that is not renewed stops
delivery; `publisher.security.revocation` decides which lists count.
"""

from __future__ import annotations

import errno
import http.client
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from smtplib import SMTPException
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from formats.hosts import machine_name
from publisher.collect.enrich import Enrichers
from publisher.config.operation import Notices, address_of
from publisher.config.schema import Config, Credentials, TargetSettings
from publisher.errors import PublisherError
from publisher.finding import Finding, Level
from publisher.messages.item import view_of
from publisher.security.connections import bound_socket
from publisher.security.credentials import load_certificates
from publisher.security.mail_server import MailServer, default_sender, mail_problem
from publisher.security.revocation import (
    LIST_FILE,
    RevocationError,
    RevocationLists,
    RevokedError,
    has_expired,
    read_lists,
)
from publisher.status.status import TargetStatus, reconcile_command, status
from publisher.store import groups, registry
from publisher.store.classes import all_classes
from publisher.store.database import Store
from publisher.store.schema import State
from publisher.text import counted, future_notes, iso, safe

_SUFFIX_LABELS: Final = 2
"""Labels of a host's name that SGAS compares, `check_depth` (facts on receivers, 1)."""
_MOST_NAMES: Final = 5
_SQLITE: Final = "sqlite:///"
_DAY_S: Final = 86400


def modes(config: Config, store: Store | None) -> Iterator[Finding]:
    """Findings about other users who may read or change the configuration and the state."""
    if config.file is not None:
        mode = _mode(config.file)
        if mode is not None and mode & (stat.S_IWGRP | stat.S_IWOTH):
            text = f"{config.file} can be changed by others (mode {mode:04o})"
            yield Finding("configuration", "red", text, f"chmod go-w {config.file}")
    file = store.file if store is not None else None
    if file is None:
        return
    mode = _mode(file)
    if mode is not None and mode & 0o077:
        text = f"{file} can be read by others (mode {mode:04o}): it contains names of users"
        yield Finding("store", "yellow", text, f"chmod 600 {file}")
    mode = _mode(file.parent)
    if mode is not None and mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        text = f"{file.parent} can be changed by others (mode {mode:04o})"
        yield Finding("store", "red", text, f"chmod 700 {file.parent}")


def _mode(file: Path) -> int | None:
    try:
        return stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return None  # reported where it is read


def new_store(url: str) -> Iterator[Finding]:
    """Why an SQLite store that does not exist yet cannot be created."""
    if not url.startswith(_SQLITE):
        return
    parents = Path(url.removeprefix(_SQLITE)).parents
    folder = next(parent for parent in parents if parent.exists())
    if not folder.is_dir():
        yield Finding("store", "red", f"{folder} is not a folder, so no store can be created in it", "Set store.url")
    elif not os.access(folder, os.W_OK | os.X_OK):
        text = f"{folder} is not writable for this user, so no store can be created in it"
        yield Finding("store", "red", text, f"Create {parents[0]} for the user that runs the publisher")


def evidence(name: str, settings: TargetSettings) -> Iterator[Finding]:
    """Why a file of the evidence cannot be read; a URL is tested by `reconcile`."""
    for file in (Path(path) for path in settings.evidence if not path.startswith("https://")):
        if not file.is_file() or not os.access(file, os.R_OK):
            problem = "is not readable" if file.exists() else "does not exist"
            text = f"evidence: {file} {problem}: nothing can be confirmed"
            hint = f"Export it from the service, or correct targets.{name}.evidence"
            yield Finding(f"target {name}", "red", text, hint)


def mail(settings: Notices) -> Iterator[Finding]:
    """Whether the mail server takes notices from our sender to each recipient."""
    if not settings.mail_to:
        return
    hint = "No run is stopped by this, but nobody hears of a problem. Correct [notices], or ask who runs the server"
    try:
        refused = MailServer(*address_of(settings.smtp), settings.starttls).refusals(
            settings.mail_from or default_sender(), settings.mail_to
        )
    except (OSError, SMTPException) as error:
        yield Finding("mail", "yellow", f"{settings.smtp}: {mail_problem(error)}", hint)
        return
    for address, answer in refused.items():
        yield Finding("mail", "yellow", f"{settings.smtp} refuses {address}: {answer}", hint)
    if not refused:
        yield Finding("mail", "green", f"{settings.smtp} takes mails to {', '.join(settings.mail_to)}")


def metrics(config: Config) -> Iterator[Finding]:
    """Whether the file for metrics can be written, and whether the port is free or answers: with a service that runs,
    it is ours."""
    file, listen = config.metrics.textfile, config.metrics.listen
    if file is not None:
        why = _why_not_written(file)
        if why is None:
            yield Finding("metrics", "green", f"{file} can be written")
        else:
            hint = "Give the folder of metrics.textfile to the user that runs the publisher"
            yield Finding("metrics", "yellow", f"{file} cannot be written: {why}", hint)
    if listen is not None:
        yield _port(listen)


def _why_not_written(file: Path) -> str | None:
    """It is written as a new file that replaces the earlier one."""
    folder = file.parent
    if not folder.is_dir():
        return f"{folder} is not a folder" if folder.exists() else f"{folder} does not exist"
    if file.is_dir():
        return "it is a folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable for this user"


def _port(listen: str) -> Finding:
    try:
        bound_socket(*address_of(listen)).close()
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            hint = "Correct metrics.listen: an address of this host, and a port above 1023 or one that is permitted"
            return Finding("metrics", "yellow", f"{listen} cannot be used: {error.strerror}", hint)
    else:
        return Finding("metrics", "green", f"{listen} is free: `run --every` answers there")
    if _answers_as_ours(listen):
        return Finding("metrics", "green", f"{listen} answers with metrics of this program")
    hint = "Set metrics.listen to another port, or end the other program"
    return Finding("metrics", "yellow", f"{listen} is used by another program", hint)


_MOST_BYTES: Final = 64 * 1024
_TIMEOUT_S: Final = 5.0


def _answers_as_ours(listen: str) -> bool:
    host, port = address_of(listen)
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return b"usage_publisher_" in connection.getresponse().read(_MOST_BYTES)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def zones(config: Config) -> Iterator[Finding]:
    """Findings about logs in local time without `timezone`: they probably have the time zone of this host."""
    offset_s = time.localtime().tm_gmtoff
    here = time.strftime("%Z, UTC%z")
    for name, source in config.sources.items():
        if source.kind.writes_local_time and "timezone" not in source.model_fields_set and offset_s:
            text = f"local times in its logs are read as UTC, and the time zone of this host is {here}"
            hint = f"Set sources.{name}.timezone, such as Europe/Oslo, or UTC if its logs are in UTC"
            yield Finding(f"source {name}", "yellow", text, hint)


def texts(config: Config) -> Iterator[Finding]:
    """For logs that do not escape what users write: the filter that refuses it at submission."""
    for name, source in config.sources.items():
        if source.kind.submit_filter:
            text = "what users write may look like records in its logs; such jobs are held as suspect"
            file = f"share/usage-publisher/filters/{source.kind.submit_filter}"
            hint = f"Refuse control characters at submission: {file} of the installation says how"
            yield Finding(f"source {name}", "green", text, hint)


def collected(config: Config, store: Store, now: int) -> Iterator[Finding]:
    """Findings about the jobs of each source, and when it was read."""
    for name, source_status in status(store, config, lambda: now, assumed=False).sources.items():
        subject = f"source {name}"
        yield from _clock(subject, source_status.times_in_future)
        if source_status.times_in_future:
            continue
        if source_status.last_collected is None and not source_status.retired:
            yield Finding(subject, "yellow", "was never read", f"Run usage-publisher collect {name}")
            continue
        last = (
            f"the last ended {iso(source_status.last_job_end)}"
            if source_status.last_job_end is not None
            else "none has ended"
        )
        text = f"{counted(source_status.jobs, 'job')} collected, {last}; last read {iso(source_status.last_collected)}"
        level: Level = "green"
        hint = ""
        if source_status.error is not None:
            level, text, hint = (
                "red",
                f"{text}; {source_status.error}",
                "Fix this; the next collect reads what was not read",
            )
            if source_status.unread_files:
                hint = "usage-publisher collect --unreadable"
        elif not source_status.read_to_end:
            level, text, hint = "yellow", f"{text}; not read to its end", "usage-publisher collect reads the rest"
        elif source_status.silent:
            level, hint = "yellow", "It is silent for longer than `expect_every`. Check the batch system and its logs"
        elif source_status.suspect:
            level, text = (
                "yellow",
                f"{text}; held: {counted(source_status.suspect, 'suspect job')}, which a user may have made",
            )
            hint = "`usage-publisher collect --unreadable` lists them; add `--accept` or `--settle`"
        elif source_status.unreadable:
            level, text = "yellow", f"{text}; unreadable: {counted(source_status.unreadable, 'piece')} of input"
            hint = "usage-publisher collect --unreadable"
        yield Finding(subject, level, text, hint)


def _clock(subject: str, times_in_future: Mapping[str, int]) -> Iterator[Finding]:
    for note in future_notes(times_in_future):
        yield Finding(subject, "yellow", note, "Check the clock of this host (chronyc tracking, timedatectl)")


def machine_names(config: Config, store: Store) -> Iterator[Finding]:
    """Findings about machine names that a service probably refuses from our certificate."""
    enrichers = Enrichers(config)
    for name, settings in config.targets.items():
        given = config.credentials_of(settings)
        if not settings.kind.compares_machine_names or given.certificate is None:
            continue
        try:
            host = _host_of(given.certificate)
            view = view_of(settings, config)
        except PublisherError:
            continue  # reported with the credentials
        with store.read() as connection:
            names = {
                machine_name(enrichers.apply(job_class.source, job_class.facts), view)
                for job_class in all_classes(connection)
                if not settings.sources or job_class.source in settings.sources
            }
        strangers = sorted(each for each in names if each and _suffix(each) != _suffix(host))
        if strangers:
            listed = ", ".join(strangers[:_MOST_NAMES]) + (" ..." if len(strangers) > _MOST_NAMES else "")
            text = f"the certificate is for {host}, and jobs ran on {listed}: the service compares the domains"
            hint = f"Ask its operators for {settings.kind.machine_names_right}, or set machine_name of the target"
            yield Finding(f"target {name}", "yellow", text, hint)


def _host_of(certificate: Path) -> str:
    """The host in a certificate's name, without the `host/` of grid certificates; empty if it has none."""
    names = load_certificates(certificate)[0].subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value).rpartition("/")[2] if names else ""


def _suffix(host: str) -> list[str]:
    return host.lower().rstrip(".").split(".")[-_SUFFIX_LABELS:]


def targets(config: Config, store: Store, now: int) -> Iterator[Finding]:
    """Findings about the last error of each target, and what is held or rejected."""
    for name, target_status in status(store, config, lambda: now, assumed=False).targets.items():
        subject = f"target {name}"
        yield from _clock(subject, target_status.times_in_future)
        if target_status.shadow:
            text = f"is a shadow: nothing is sent; waiting: {counted(target_status.waiting, 'job')}"
            hint = (
                f"To take over: usage-publisher shadow {name} --take-over --delivered-until TIME "
                "(or --against PATH), then remove `shadow`"
            )
            yield Finding(subject, "yellow", text, hint)
        elif target_status.last_error is not None:
            since = iso(target_status.last_success) or ("unknown" if target_status.accepted else "never")
            yield Finding(
                subject, "yellow", f"{target_status.last_error} (last success: {since})", "usage-publisher publish"
            )
        yield from _evidence_against(subject, name, target_status)
        if target_status.totals_rejected:
            text = f"rejected: {counted(target_status.totals_rejected, 'total')}, of which the service has other values"
            text += f": {_totals_named(store, name, State.REJECTED)}"
            hint = f"Correct the cause, then usage-publisher republish {name} --month MONTH"
            yield Finding(subject, "yellow", text, hint)
        if target_status.rejected:
            text = f"rejected: {counted(target_status.rejected, 'record')}"
            yield Finding(subject, "yellow", text, f"usage-publisher records list --state rejected --target {name}")
        if target_status.totals_held:
            text = f"held: {counted(target_status.totals_held, 'total')}, of which the service has other values"
            text += f": {_totals_named(store, name, State.HELD)}"
            yield Finding(subject, "yellow", text, f"usage-publisher publish {name} tries again, and says why")
        if target_status.held:
            text = f"held: {counted(target_status.held, 'record')}"
            yield Finding(subject, "yellow", text, f"usage-publisher records list --state held --target {name}")


def _totals_named(store: Store, name: str, state: State) -> str:
    """The keys, which begin with year and month or have them, of some totals in a state."""
    with store.read() as connection:
        target = registry.get_target(connection, name)
        keys = [key for _, key in groups.in_state(connection, target.id, state)] if target is not None else []
    return safe(_some(keys))


def _evidence_against(subject: str, name: str, found: TargetStatus) -> Iterator[Finding]:
    """Findings about what the service lacks, has with other values, or did not confirm."""
    if not found.is_contradicted:
        return
    if found.missing or found.differing:
        text = f"at the service: {found.missing:,} missing, {found.differing:,} with other values"
        at = iso(found.reconciled_at)
        yield Finding(subject, "yellow", f"{text} (compared {at})", reconcile_command(name, found))
    if found.confirmation_overdue:
        jobs = counted(found.accepted - found.confirmed, "accepted job")
        text = f"not confirmed by its evidence: {jobs}, the oldest for {found.unconfirmed_days} days"
        yield Finding(subject, "yellow", text, f"{reconcile_command(name, found)}, then ask its administrator")


_AUTHORITY: Final = re.compile(r"[0-9a-f]{8}\.\d+").fullmatch
_NAMED: Final = 3
_LONGEST_CHAIN: Final = 10


def trust(config: Config, now: int) -> Iterator[Finding]:
    """Findings about each directory of authorities, and each certificate that it is used with."""
    used: dict[Path, dict[str, Credentials]] = {}
    for name, target in config.targets.items():
        given = config.credentials_of(target)
        if given.ca_directory is not None:
            used.setdefault(given.ca_directory, {})[name] = given
    for directory, settings in used.items():
        try:
            yield from _directory(directory, settings, datetime.fromtimestamp(now, UTC))
        except OSError as error:
            hint = f"Check ca_directory in [credentials]. Not tested without it: {', '.join(settings)}"
            yield Finding("authorities", "red", f"{directory} cannot be read: {error.strerror}", hint)


def lacks_authorities(config: Config, settings: TargetSettings) -> bool:
    """Whether the service of a target cannot be tested, because its directory of authorities has none (see `trust`)."""
    directory = config.credentials_of(settings).ca_directory
    if directory is None or "url" not in type(settings).model_fields:
        return False
    try:
        return not any(_AUTHORITY(file.name) for file in directory.iterdir())
    except OSError:
        return True


def _directory(directory: Path, settings: Mapping[str, Credentials], at: datetime) -> Iterator[Finding]:
    authorities, bad = _authorities(directory)
    lists, bad_lists = _lists(directory)
    old = [file.name for file, one in authorities for each in one if each.not_valid_after_utc < at]
    said = f"{directory}: certificates of authorities: {len(authorities)}, revocation lists: {len(lists)}"
    if not authorities:
        hint = "Install the IGTF distribution, or run openssl rehash on the directory. Not tested without it: "
        hint += ", ".join(settings)
        yield Finding("authorities", "red", said, hint)
        return
    yield Finding(
        "authorities",
        "green",
        said,
        "" if lists else "Without revocation lists, revoked certificates are accepted. fetch-crl downloads them",
    )
    if bad:
        yield Finding("authorities", "yellow", f"cannot be read: {_some(bad)}", "Install the distribution again")
    if old:
        yield Finding("authorities", "yellow", f"expired: {_some(old)}", "Install a later distribution of authorities")
    expired = dict.fromkeys(file.name for file, one in lists if has_expired(one, at))
    if expired or bad_lists:
        text = f"revocation lists that expired or cannot be read: {_some([*expired, *bad_lists])}"
        hint = "Run fetch-crl, usually by cron: services of these authorities are refused"
        yield Finding("revocation lists", "yellow", text, hint)
    for given in {
        credentials.certificate: credentials for credentials in settings.values() if credentials.certificate is not None
    }.values():
        assert given.certificate is not None  # chosen so
        yield from _ours(given.certificate, [one for _, each in authorities for one in each], directory, at)


def _ours(file: Path, authorities: Iterable[x509.Certificate], directory: Path, at: datetime) -> Iterator[Finding]:
    """Findings about our certificate: unknown authority, or revoked."""
    try:
        ours = load_certificates(file)[0]
    except PublisherError:
        return  # reported with the credentials
    chain = [ours]
    by_name = {authority.subject: authority for authority in authorities}
    while chain[-1].issuer != chain[-1].subject and chain[-1].issuer in by_name and len(chain) < _LONGEST_CHAIN:
        chain.append(by_name[chain[-1].issuer])
    if len(chain) == 1:
        issuer = ours.issuer.rfc4514_string()
        text = f"{file} was issued by an authority that is not in this directory: {issuer}"
        yield Finding("authorities", "yellow", text, "Services usually trust the same authorities, and may refuse it")
    try:
        RevocationLists(directory).check(chain, at)
    except RevokedError as error:
        text = f"{file} cannot be used: {error}"
        yield Finding("certificate", "red", text, "Get a new certificate: every service will refuse this one")
    except RevocationError:
        pass  # reported with the lists


def _authorities(directory: Path) -> tuple[list[tuple[Path, list[x509.Certificate]]], list[str]]:
    authorities: list[tuple[Path, list[x509.Certificate]]] = []
    bad: list[str] = []
    for file in sorted(directory.iterdir()):
        if _AUTHORITY(file.name):
            try:
                authorities.append((file, load_certificates(file)))
            except PublisherError:
                bad.append(file.name)
    return authorities, bad


def _lists(directory: Path) -> tuple[list[tuple[Path, x509.CertificateRevocationList]], list[str]]:
    lists: list[tuple[Path, x509.CertificateRevocationList]] = []
    bad: list[str] = []
    for file in sorted(directory.iterdir()):
        if not LIST_FILE(file.name):
            continue
        try:
            lists.extend((file, revocation_list) for revocation_list in read_lists(file))
        except (OSError, ValueError):
            bad.append(file.name)
    return lists, bad


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
