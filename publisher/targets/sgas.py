"""SGAS: usage records of OGF, posted over HTTPS with the client certificate.

A 200 whose JSON names the records that were sent is the receipt, checked record by record; a 200 that names none of
them proves nothing. SGAS stores a message whole or not at all, has no status of its own for bad data (500 is either the
data's fault or its own), and ignores a record it already has, so sending again is harmless (the facts on receivers,
section 1).

What SGAS reports of what it holds: sums by machine, user, VO and day, and when it last took records of a machine.

SGAS cannot be asked for a record. Sums are asked for at two addresses (the facts on receivers, section 1):

- `customquery/usage-publisher`, a query that the administrator of SGAS defines as in docs/reference/targets/sgas.conf
  or, for the released LUTS, sgas-released.conf. It sums up the records themselves, at once, in whole seconds.
- `query`, the built-in one, where the first gives nothing. It gives CPU and wall hours, wall multiplied by processors,
  summed up some 20 s after an insert. The shipped view rounds the hours of each of its rows, which hold one record or
  more, to 0.01 h before they are summed: a sum of n records is right within n x 18 s. It works in the released LUTS.

The first day is left out by some versions and not by others, so a day more is asked for, and what was not asked for is
dropped. A service that cannot answer (no plug-in, no right, a version whose query always fails, numbers that are not
numbers) is `EvidenceUnavailable`, with the reason.

Two versions of LUTS are in use, and both call themselves 3.8.1: the release of 2017 (Python 2), and the master branch
since (Python 3). Master answers 500 where the release answers 400 or 403 with a text: to every `query`, to a `monitor`
without the right, and to a custom query that is not defined. Neither answers a custom query whose SQL fails.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from itertools import chain
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from formats.calendar import SECONDS_A_DAY, date_of_day
from formats.job import Job
from publisher.config.targets import SgasSettings
from publisher.finding import Finding
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.targets import answers
from publisher.targets.base import (
    Accepted,
    EvidenceUnavailable,
    Message,
    Outcome,
    PeriodSum,
    Refused,
    Unauthorised,
    Unknown,
)
from publisher.targets.identity import Identity, TargetContext

_HOUR_S: Final = 3600
_ROW_ROUNDING_S: Final = 0.01 * _HOUR_S / 2
"""How much the shipped view may change the wall or CPU time of a record."""
_NUMBER: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{0,40})?(?:[eE][-+]?[0-9]{1,2})?", re.ASCII)
_MOST: Final = 10**12
"""Limits for jobs of a day, hours of a day, and seconds since a registration: larger values are invalid answers."""
CUSTOM_QUERY: Final = "customquery/usage-publisher"
"""The query that docs/reference/targets/sgas.conf defines."""
QUERY: Final = "query"
_MONITOR: Final = "monitor"
_RIGHTS: Final = {
    CUSTOM_QUERY: "customquery:querygroup=usage-publisher",
    QUERY: "query:all",
    _MONITOR: "monitor",
}
"""By address: the right that our certificate needs in SGAS' sgas.authz."""
_FAILS: Final = {
    CUSTOM_QUERY: "the query is perhaps not defined in sgas.conf",
    QUERY: "LUTS from its master branch fails at every such query",
}
"""Another meaning of 500: LUTS' master has no other status for a missing right at `query` and `monitor`."""

Ask = Callable[[str], Reply | Failure]
"""Gets an address below the base URL."""


class _UsageLine(msgspec.Struct):
    """A line of the answer. Databases write sums as numbers or as text."""

    machine_name: str
    start_date: str
    end_date: str
    n_jobs: int | float | str
    user_identity: str | None = None
    vo_name: str | None = None
    cpu_time: int | float | str | None = None
    wall_time: int | float | str | None = None
    cpu_s: int | float | str | None = None
    wall_s: int | float | str | None = None
    """`_time`: hours, of `query`; `_s`: seconds, of the custom query."""


class _Monitor(msgspec.Struct):
    registration_epoch: int | float | None
    """None: LUTS 3.8.1 answers so about an unknown machine."""


def usage(
    ask: Ask, address: str, machine: str, first_day: int, until_day: int
) -> list[PeriodSum] | EvidenceUnavailable:
    """What is held of a machine for the days from `first_day` until `until_day` (exclusive), counted from 1970.

    `address`: `CUSTOM_QUERY` or that of the built-in query. An answer that is too large is asked for in halves.
    """
    arguments = {
        "machine_name": machine,
        "start_date": date_of_day(first_day - 1).isoformat(),
        "end_date": date_of_day(until_day).isoformat(),
    }
    if address == QUERY:
        arguments["time_resolution"] = "day"
    reply = ask(f"/{address}?{urlencode(arguments)}")
    if isinstance(reply, Failure) and reply.kind == "too-large" and until_day - first_day > 1:
        middle = (first_day + until_day) // 2
        parts = [usage(ask, address, machine, *half) for half in ((first_day, middle), (middle, until_day))]
        refused = next((part for part in parts if isinstance(part, EvidenceUnavailable)), None)
        return refused or [line for part in parts if not isinstance(part, EvidenceUnavailable) for line in part]
    if isinstance(reply, Failure) or reply.status != 200:
        return unavailable(reply, address)
    try:
        lines = [_day_sum(line) for line in msgspec.json.decode(reply.body, type=list[_UsageLine])]
    except (msgspec.MsgspecError, ValueError) as error:
        return EvidenceUnavailable(f"the answer of {address} cannot be read: {error}")
    return [line for line in lines if line.values[0] == machine and first_day <= line.day < until_day]


def last_registration_s(ask: Ask, machine: str) -> float | EvidenceUnavailable | None:
    """Seconds since the service last took records of a machine; None: it never did."""
    reply = ask(f"/{_MONITOR}/{quote(machine, safe='')}")
    if isinstance(reply, Reply) and reply.status == 404:
        return None
    if isinstance(reply, Failure) or reply.status != 200:
        return unavailable(reply, _MONITOR)
    try:
        monitor = msgspec.json.decode(reply.body, type=_Monitor | None)
        if monitor is None or monitor.registration_epoch is None:
            return None
        return _number("registration_epoch", monitor.registration_epoch)
    except (msgspec.MsgspecError, ValueError) as error:
        return EvidenceUnavailable(f"the answer of {_MONITOR} cannot be read: {error}")


_PROBES: Final = (f"/{QUERY}?-=", "/customquery/-")
"""Requests that need no right and ask for nothing: an argument that no query has, and a query that nobody defines."""
_RELEASED_ANSWERS: Final = (b"Query field", b"Query does not exist")


def version(name: str, ask: Ask) -> Finding:
    """Which LUTS answers. It states no version, but only the release answers a wrong query with 400 and a text: in
    its master branch, for Python 3, that answer fails with 500."""
    subject = f"{name}: version"
    for path in _PROBES:
        reply = ask(path)
        if not isinstance(reply, Reply):
            break
        if reply.status == 400 and reply.body.startswith(_RELEASED_ANSWERS):
            return Finding(
                subject,
                "green",
                "LUTS as released (3.8.1 of 2017, or older)",
                "The query for its sgas.conf is sgas-released.conf of the documentation. nginx must give it names of "
                "certificates with slashes ($ssl_client_s_dn_legacy)",
            )
        if reply.status == 500:
            hint = "The query for its sgas.conf is sgas.conf of the documentation"
            return Finding(subject, "green", "LUTS from its master branch, newer than the release 3.8.1", hint)
    return Finding(subject, "green", "unknown: neither query nor customquery answers as LUTS does")


def unavailable(reply: Reply | Failure, address: str) -> EvidenceUnavailable:
    """Why an answer at an address is no evidence, and which right to ask for where that may be the cause."""
    if isinstance(reply, Failure):
        outcome = answers.of_failure(reply)
        return EvidenceUnavailable(getattr(outcome, "answer", ""), unauthorised=isinstance(outcome, Unauthorised))
    said = f"{address}: {answers.describe(reply)}"
    right = f"`{_RIGHTS[address]}` in the sgas.authz of SGAS"
    if reply.status == 403:
        return EvidenceUnavailable(f"{said} (the name of our certificate needs the right {right})", unauthorised=True)
    if reply.status == 404:
        return EvidenceUnavailable(f"{said} (the plug-in is not configured in sgas.conf)")
    if reply.status == 400 and address == CUSTOM_QUERY:
        return EvidenceUnavailable(f"{said} (the query is not defined in sgas.conf)")
    if reply.status == 500:
        also = f"; {_FAILS[address]}" if address in _FAILS else ""
        return EvidenceUnavailable(
            f"{said} (perhaps the name of our certificate lacks the right {right}, to which LUTS answers 500{also})"
        )
    return EvidenceUnavailable(said, unauthorised=reply.status in {401, 407} or answers.refuses_certificate(reply))


def _day_sum(line: _UsageLine) -> PeriodSum:
    if line.start_date != line.end_date:
        raise ValueError(f"a line from {line.start_date} to {line.end_date} although days were requested")
    day = int(datetime.fromisoformat(line.start_date).replace(tzinfo=UTC).timestamp()) // SECONDS_A_DAY
    own = f"{line.machine_name}:"  # how SGAS names those of whom it knows no grid identity
    jobs = _number("n_jobs", line.n_jobs)
    if jobs < 0 or not jobs.is_integer():
        raise ValueError(f"n_jobs: {line.n_jobs!r} is not a number of jobs")
    is_exact = line.wall_s is not None and line.cpu_s is not None
    wall_s = _number("wall_s", line.wall_s or 0) if is_exact else _number("wall_time", line.wall_time or 0) * _HOUR_S
    cpu_s = _number("cpu_s", line.cpu_s or 0) if is_exact else _number("cpu_time", line.cpu_time or 0) * _HOUR_S
    return PeriodSum(
        (line.machine_name, _named(line.user_identity, own), _named(line.vo_name, own)),
        day,
        int(jobs),
        wall_s,
        cpu_s,
        0.0 if is_exact else jobs * _ROW_ROUNDING_S,
    )


def _number(name: str, value: float | str) -> float:
    """A number of an answer. Raises `ValueError` for text that is not a number, such as `inf`, and for one out of
    bounds."""
    text = str(value)
    number = float(text) if _NUMBER.fullmatch(text) else _MOST
    if not -_MOST < number < _MOST:
        raise ValueError(f"{name}: {text[:40]!r} is not a number, or is out of bounds")
    return number


def _named(name: str | None, own: str) -> str:
    return "" if name is None or name.startswith(own) else name


def spelt_in_sums(column: str, value: str) -> str:
    """The value of a column of a record in the sums of SGAS, which leaves VOs out that begin with a slash."""
    return "" if column == "vo" and value.startswith("/") else value


_is_row_id = re.compile(r"[1-9][0-9]{0,18}").fullmatch
"""Matches the id of a row in SGAS' database, as text: a positive bigint."""


class SgasTarget:
    """One SGAS server under its name in the configuration."""

    kind = "sgas"

    def __init__(self, name: str, settings: SgasSettings, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send records in plain text."""
        self.name = name
        base = settings.url.rstrip("/").removesuffix("/ur")
        self._base_url, self._insert_url = base, f"{base}/ur"
        self._identity = Identity(settings.credentials, context)
        self._limit_bytes = settings.batch_bytes
        self._query_address = CUSTOM_QUERY
        self._refusals = context.refusals
        self._client = self._identity.client(base, timeout_s=settings.timeout, proxy=settings.proxy)

    def payload_limit_bytes(self) -> int | None:
        """The payload is sent as it is."""
        return self._limit_bytes

    def post(self, message: Message) -> Outcome:
        """Insert the records. See `publisher.targets.base.Target.post`."""
        known = self._known_refusal(message) if self._refusals else None
        if known is not None:
            return known
        if self._identity.has_expired():
            self.close()
        reply = self._client.request(
            "POST", self._insert_url, content=message.payload, headers={"Content-Type": message.content_type}
        )
        if not isinstance(reply, Reply):
            return answers.of_failure(reply)
        outcome = outcome_of_reply(reply, message, self._identity.clock())
        if isinstance(outcome, Refused) and len(outcome.parts) == 1:
            self._refusals |= dict.fromkeys(_by_machine(message), outcome.answer)
        return outcome

    def _known_refusal(self, message: Message) -> Refused | None:
        """The refusal of a message with machines that SGAS refused alone in this run: it would refuse the whole message
        again, once for each message with one of them."""
        machines = _by_machine(message)
        refused = [name for name in machines if name in self._refusals]
        if not refused:
            return None
        return Refused(self._refusals[refused[0]], certain=True, parts=_parts(machines, refused), known_before=True)

    def check(self) -> list[Finding]:
        """Ask for the list of services and, without records, for the address that accepts them."""
        findings = answers.certificate(self.name, self._identity)
        reply = self._client.request("GET", self._base_url) if not answers.is_red(findings) else None
        if reply is None:
            return findings
        findings += answers.reached(self.name, self._base_url, reply, self._identity.clock(), expected={200})
        if not answers.is_red(findings):
            insert = self._client.request("GET", self._insert_url)
            findings += answers.answered(
                f"{self.name}: inserting", self._insert_url, insert, expected={405}, means="accepts POST"
            )
            findings.append(
                answers.registration(
                    self.name,
                    self._identity,
                    "To insert, this name needs jobinsert in the sgas.authz of SGAS. Only sending a record tests it",
                )
            )
            findings.append(version(self.name, self._ask))
        return findings

    @property
    def sums_lag(self) -> bool:
        """Whether the built-in query answered: its aggregation is made some time after an insert."""
        return self._query_address == QUERY

    def usage(self, machine: str, first_day: int, until_day: int) -> list[PeriodSum] | EvidenceUnavailable:
        """What SGAS has of a machine, by user, VO, and day: from the custom query, else from the built-in one."""
        sums = usage(self._ask, self._query_address, machine, first_day, until_day)
        if self._query_address == QUERY or not isinstance(sums, EvidenceUnavailable):
            return sums
        built_in = usage(self._ask, QUERY, machine, first_day, until_day)
        if isinstance(built_in, EvidenceUnavailable):
            reasons = dict.fromkeys((sums.reason, built_in.reason))  # one where the service cannot be reached
            return EvidenceUnavailable("; ".join(reasons), sums.unauthorised or built_in.unauthorised)
        self._query_address = QUERY  # it answers: the other one need not be asked again
        return built_in

    def last_registration_s(self, machine: str) -> float | EvidenceUnavailable | None:
        """Seconds since SGAS last took records of a machine; None: it never did."""
        return last_registration_s(self._ask, machine)

    def _ask(self, path: str) -> Reply | Failure:
        if self._identity.has_expired():
            self.close()
        return self._client.request("GET", self._base_url + path)

    def close(self) -> None:
        """Close the connection and forget the credentials."""
        self._client.close()
        self._identity.forget()


def outcome_of_reply(reply: Reply, message: Message, now_s: float) -> Outcome:
    """Interpret SGAS' answer to a message."""
    if reply.status == 200:
        return _accepted(reply, message) or Unknown(
            f"the answer does not name the records that were sent: {answers.describe(reply)}"
        )
    if reply.status == 406:
        return Refused(answers.describe(reply) + _spelling(reply), certain=True, parts=_refused_parts(reply, message))
    if reply.status == 500:
        return Refused(answers.describe(reply), certain=False)
    return answers.of_status(reply, now_s)


_names_machines = re.compile(
    r"Subject (.{1,2000}) is not allowed to perform insertion for machines: (.+)", re.DOTALL
).fullmatch
_common_name = re.compile(r"(?:^|,)CN=(?:host/)?([^,]+)").search
_DEPTH: Final = 2
"""Labels of a machine's name that LUTS compares with the certificate's name, unless its `check_depth` is set."""
_COMMAS: Final = (
    ". SGAS got the name of our certificate with commas, which LUTS as released cannot compare with machine names: ask "
    "its administrator to set X-SSL-Subject to $ssl_client_s_dn_legacy in nginx"
)


def _spelling(reply: Reply) -> str:
    """What to do about a 406 that has no other cause than the spelling of our name; empty for any other cause."""
    naming = _names_machines(reply.body.decode("utf-8", "replace"))
    subject, machines = naming.groups() if naming is not None else ("/", "")
    common_name = _common_name(subject) if not subject.startswith("/") else None
    if common_name is None:
        return ""
    domain = common_name.group(1).split(".")[-_DEPTH:]
    is_ours = len(domain) == _DEPTH and any(name.split(".")[-_DEPTH:] == domain for name in machines.split(","))
    return _COMMAS if is_ours else ""


def _refused_parts(reply: Reply, message: Message) -> tuple[tuple[str, ...], ...]:
    """The records of each machine that a 406 names, by id, and last all others; empty if the answer does not show it.

    LUTS judges a message by its machines alone, and names all of them if one is not allowed, in any order. An answer of
    another form, or with a name that was not sent, shows nothing.
    """
    naming = _names_machines(reply.body.decode("utf-8", "replace"))
    if naming is None:
        return ()
    named, machines = set(naming.group(2).split(",")), _by_machine(message)
    return _parts(machines, named) if named <= machines.keys() else ()


def _by_machine(message: Message) -> dict[str, list[str]]:
    """The record ids of a message by machine; empty if the message cannot be read."""
    machines: dict[str, list[str]] = {}
    for job in _sent_jobs(message.payload):
        machines.setdefault(job.cluster or "", []).append(job.record_id)
    return machines if sorted(chain(*machines.values())) == sorted(message.record_ids) else {}


def _parts(machines: Mapping[str, Sequence[str]], named: Collection[str]) -> tuple[tuple[str, ...], ...]:
    """The record ids of each named machine, and last those of all others, if there are any."""
    parts = [tuple(ids) for machine, ids in machines.items() if machine in named]
    others = tuple(chain.from_iterable(ids for machine, ids in machines.items() if machine not in named))
    return (*parts, others) if others else tuple(parts)


def _sent_jobs(payload: bytes) -> list[Job]:
    """The records of a message; none of a format of an add-on that is not XML."""
    from formats.xml.read import NotAMessageError, read  # noqa: PLC0415 - the parser is needed for few replies

    try:
        return [record.job for record in read(payload)]
    except NotAMessageError:
        return []


def _accepted(reply: Reply, message: Message) -> Accepted | None:
    """The records that the reply names, each with the id of a row; None if it names none of those sent.

    SGAS keeps a record under its GlobalJobId where it does not use the LocalJobId; such a record is named by that. What
    is not named is unknown, and so are all if the reply is not an object of row ids, no two the same: a page of a
    proxy, an answer to another message that a cache repeats, or the `null` that SGAS answers after a restart of its
    database although it stored them. A reply that names only a GlobalJobId of several records accepts none of them;
    they are missing, so they wait and do not stop the rest.
    """
    try:
        rows = {
            identity: str(row) for identity, row in msgspec.json.decode(reply.body, type=dict[str, str | int]).items()
        }
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if not all(map(_is_row_id, rows.values())) or len(set(rows.values())) < len(rows):
        return None
    receipt = {identity: rows[identity] for identity in message.record_ids if identity in rows}
    missing = [identity for identity in message.record_ids if identity not in rows]
    others = rows.keys() - receipt.keys()
    kept_as = _kept_under_global_id(message.payload, missing, others) if missing and others else {}
    rewritten = {identities[0]: kept for kept, identities in kept_as.items() if len(identities) == 1}
    receipt |= {identity: rows[kept] for identity, kept in rewritten.items()}
    if not receipt and not kept_as:
        return None
    left = tuple(identity for identity in missing if identity not in rewritten)
    return Accepted(receipt=receipt, missing=left, rewritten=rewritten)


def _kept_under_global_id(payload: bytes, missing: Sequence[str], others: AbstractSet[str]) -> dict[str, Sequence[str]]:
    """By GlobalJobId among the `others` that a reply names: the ids of all records with it, if it may stand for one
    that is `missing` in the reply.

    How long a LocalJobId must be for this depends on the version of LUTS (above 40 characters in the release, 120 in
    its master branch), so the length is not asked for: an answer that names a GlobalJobId of this very message is about
    its record. A record without a LocalJobId is always kept under its own id. Two records with one GlobalJobId are one
    row there, so it stands for neither.
    """
    sent_as: dict[str, list[str]] = defaultdict(list)
    unnamed, jobs = set(missing), _sent_jobs(payload)
    may_be_kept_so = {job.global_id for job in jobs if job.local_id and job.record_id in unnamed}
    for job in jobs:
        if job.global_id is not None and job.global_id in others and job.global_id in may_be_kept_so:
            sent_as[job.global_id].append(job.record_id)
    return dict(sent_as)
