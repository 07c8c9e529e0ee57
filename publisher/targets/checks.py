"""Findings that the targets' checks share: certificate, connection, clock, and where a name must be registered."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from publisher.errors import CredentialError
from publisher.finding import Finding, Level
from publisher.targets import answers
from publisher.targets.context import Identity
from publisher.tls import make_context
from publisher.transport import Failure, Reply

_YELLOW_DAYS, _RED_DAYS = 30, 7
_YELLOW_OFFSET_S, _RED_OFFSET_S = 30.0, 300.0


def certificate(name: str, identity: Identity) -> list[Finding]:
    """Whether the certificate can be used, and how long still; and whether there is an authority to trust."""
    subject = f"{name}: certificate"
    try:
        make_context(identity.trust, None)
        credentials = identity.optional()
    except CredentialError as error:
        return [Finding(subject, "red", error.message, error.hint)]
    if credentials is None:
        return [Finding(subject, "yellow", "none is configured", "Most services ask for one: see [credentials]")]
    days = credentials.days_left(identity.clock())
    level = _level(days < _YELLOW_DAYS, days < _RED_DAYS)
    return [Finding(subject, level, f"{days} days left", "Renew it" if level != "green" else "")]


def reached(name: str, url: str, reply: Reply | Failure, now_s: float, *, expected: AbstractSet[int]) -> list[Finding]:
    """Whether the service answered as expected, and whether its clock and ours agree."""
    findings = answered(f"{name}: reached", url, reply, expected=expected, means="answers")
    offset_s = answers.clock_offset_s(reply, now_s) if isinstance(reply, Reply) else None
    if offset_s is not None:
        level = _level(abs(offset_s) > _YELLOW_OFFSET_S, abs(offset_s) > _RED_OFFSET_S)
        hint = "Synchronise the clock of this host (chrony, ntpd)" if level != "green" else ""
        findings.append(Finding(f"{name}: clock", level, f"{offset_s:+.0f} s against the service's Date header", hint))
    return findings


def answered(
    subject: str, url: str, reply: Reply | Failure, *, expected: AbstractSet[int], means: str
) -> list[Finding]:
    """Green for an expected status, yellow for another, red where there is no answer, nothing there, or a refusal."""
    if isinstance(reply, Failure):
        return [Finding(subject, "red", f"{url}: {reply.message}", reply.hint)]
    if reply.status in expected:
        return [Finding(subject, "green", f"{url} {means}")]
    if reply.status in {404, 410}:
        return [Finding(subject, "red", f"{url}: {answers.describe(reply)}", "Check the URL: there is nothing at it")]
    refused = reply.status in {400, 401, 403, 407}
    hint = (
        "Check that the service trusts our certificate and knows its name"
        if refused
        else "Check the URL, and that the service is well"
    )
    return [Finding(subject, "red" if refused else "yellow", f"{url}: {answers.describe(reply)}", hint)]


def registration(name: str, identity: Identity, where: str, level: Level = "green") -> Finding:
    """The certificate's name in both spellings, and where it must be known."""
    credentials = identity.optional()
    names = "no certificate" if credentials is None else f"{credentials.slash_dn} or {credentials.rfc2253_dn}"
    return Finding(f"{name}: name", level, names, where)


def is_red(findings: Sequence[Finding]) -> bool:
    """Whether going on makes no sense."""
    return any(finding.level == "red" for finding in findings)


def _level(yellow: bool, red: bool) -> Level:
    return "red" if red else "yellow" if yellow else "green"
