"""Waldur: usages of an offering's resources by account, component, and user for each month (facts on Waldur).

A report replaces the month's values, so it is sent again after any doubt. Waldur keeps no word on who wrote a value:
one that is neither ours nor an earlier one of ours is another writer's, and the account is held, or two programs would
overwrite each other without end.

Servers of 2024 know no `date`: they write the present month, whatever the report says. So the present month is sent
without `date`, and another one, or the present one shortly before or after its end, only to a server that showed that
it reads `date`: it refuses one in the future, for which older ones write again what they have. Afterwards both months
are read back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from formats.calendar import SECONDS_A_DAY, Month, month_bounds, month_of
from formats.columns import TotalColumns
from formats.text import date_time
from formats.waldur.usage import AccountReport, ComponentAmount, columns_of, read_reports
from publisher.config.waldur import WaldurSettings
from publisher.finding import Finding
from publisher.security.http import Reply
from publisher.targets import answers
from publisher.targets.base import (
    Accepted,
    Blocked,
    EvidenceUnavailable,
    Message,
    Outcome,
    Unauthorised,
)
from publisher.targets.identity import Identity, TargetContext
from publisher.targets.waldur_api import ComponentUsageRow, OfferingResource, UnreportedError, WaldurApi, plain_uuid

_EDGE_S: Final = 600
"""How far the clocks of this host and of Waldur may differ, and how long a report may take, at the turn of a month."""
_FUTURE_S: Final = 400 * SECONDS_A_DAY
_MID_MONTH_S: Final = 14 * SECONDS_A_DAY + SECONDS_A_DAY // 2
"""A date in the middle of a month, which is in this month in every time zone."""
_REPORTABLE: Final = ("usage", "limit")
_IGNORES_DATE: Final = (
    "this Waldur ignores `date` and would write it into the present month. Ask its operators to enter the month, then "
    "waive these jobs; or to update it"
)
_STAFF_ONLY: Final = ". Only a token of Waldur's staff may fill past months: ask its operators"


class WaldurTarget:
    """One offering of a Waldur service."""

    kind = "waldur"

    def __init__(self, name: str, settings: WaldurSettings, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send the token in plain text."""
        self.name = name
        self._settings = settings
        self._identity = Identity(settings.own_credentials, context)
        self._authorisation = self._identity.authorisation(timeout_s=settings.timeout, proxy=settings.proxy)
        self._client = self._identity.authorised_client(settings.url, timeout_s=settings.timeout, proxy=settings.proxy)
        self._api = WaldurApi(settings.url, settings.offering, self._client, self._identity)
        self._types: frozenset[str] | None = None
        self._resources: dict[str, OfferingResource] | None = None
        self._reads_date = False

    def payload_limit_bytes(self) -> int | None:
        """None: a message is several requests of a bounded size."""
        return None

    def why_not_ready(self) -> Outcome | None:
        """See `publisher.targets.base.ChecksSettings`. A component that the offering does not have would be reported as
        0.00 after it was corrected, since Waldur might have it."""
        try:
            self._require_components()
        except UnreportedError as halted:
            return halted.outcome if isinstance(halted.outcome, Unauthorised) else None  # an outage is waited for
        return None

    def post(self, message: Message) -> Outcome:
        """Report each account of a message. See `publisher.targets.base.Target.post`."""
        if self._identity.has_expired():
            self.close()
        receipt: Counter[str] = Counter()
        try:
            for report in read_reports(message.payload):
                receipt.update(self._report(report))
        except UnreportedError as halted:
            return halted.outcome
        return Accepted({what: str(number) for what, number in receipt.items()})

    def totals(self, month: Month) -> Sequence[TotalColumns] | EvidenceUnavailable:
        """See `publisher.targets.base.GivesTotals`. Only components that are reported from here."""
        try:
            names = {plain_uuid(each.uuid): each.backend_id or each.uuid for each in self._api.resources()}
            rows = [(each.resource_uuid, each.type, "", each.usage) for each in self._api.usages(month)]
            if self._settings.users:
                rows += [
                    (each.resource_uuid, each.component_type, each.username, each.usage)
                    for each in self._api.user_usages(month)
                ]
        except UnreportedError as halted:
            return EvidenceUnavailable(str(halted), unauthorised=isinstance(halted.outcome, Unauthorised))
        accounts: dict[str, dict[tuple[str, str], Decimal]] = {}
        for resource, component, user, usage in rows:
            account = names.get(plain_uuid(resource))
            if account is not None and component in self._settings.components:
                amounts = accounts.setdefault(account, {})
                amounts[component, user] = amounts.get((component, user), Decimal(0)) + usage
        columns = (columns_of(month, account, amounts) for account, amounts in sorted(accounts.items()))
        return [total for total in columns if total.amounts]

    def check(self) -> list[Finding]:
        """Is the token accepted, and has the offering the components? Nothing shows whether we may write, but to
        write."""
        findings = answers.certificate(self.name, self._identity, sends_token=self._identity.has_token)
        findings += answers.token(self.name, self._authorisation, self._identity.clock())
        if not self._identity.has_token:
            hint = 'Set credentials = { token_file = "FILE" } of the target'
            findings.append(Finding(f"{self.name}: token", "red", "none is configured", hint))
        if answers.is_red(findings):
            return findings
        subject = f"{self.name}: offering"
        try:
            self._require_components()
            number = len(self._known_resources())
        except UnreportedError as halted:
            refused = isinstance(halted.outcome, Unauthorised) and not halted.outcome.misdirected
            hint = "Renew the token" if refused else "Check `url`, `offering`, and `components`"
            return [*findings, Finding(subject, "red", str(halted), hint)]
        if not number:
            return [*findings, Finding(subject, "yellow", "it has no resources", "Check `offering`")]
        return [*findings, Finding(subject, "green", f"it has the components; {number} accounts")]

    def close(self) -> None:
        """Close the connection; forget the credentials and what was learned of the service."""
        self._client.close()
        self._identity.forget()
        self._types, self._resources, self._reads_date = None, None, False

    # --- what the service has

    def _require_components(self) -> frozenset[str]:
        """The components of the offering. Raises `UnreportedError` if one of ours is not among them."""
        if self._types is None:
            listed = self._api.components()
            types = frozenset(each.type for each in listed if each.billing_type in _REPORTABLE)
            unknown = sorted(set(self._settings.components) - types)
            if unknown:
                text = (
                    f"the offering has no component {', '.join(unknown)} with the billing type usage or limit; it has "
                )
                text += f"{', '.join(sorted(types)) or 'none'}. Correct targets.{self.name}.components"
                raise UnreportedError(Unauthorised(text, misdirected=True))
            self._types = types
        return self._types

    def _known_resources(self) -> dict[str, OfferingResource]:
        if self._resources is None:
            self._resources = {}
            for resource in self._api.resources():
                self._resources.setdefault(resource.backend_id or "", resource)
        return self._resources

    def _rows(self, resource: str, month: Month) -> dict[str, ComponentUsageRow]:
        """The amounts of a resource by component. Raises `UnreportedError` if Waldur has two of one."""
        rows: dict[str, ComponentUsageRow] = {}
        for row in self._api.usages(month, resource):
            if row.type in rows:
                text = f"Waldur has two usages of {row.type} in {month}, one without a plan. Ask its operators"
                raise UnreportedError(Blocked(text))
            rows[row.type] = row
        return rows

    # --- reporting

    def _report(self, report: AccountReport) -> Mapping[str, int]:
        types = self._require_components()
        resource = self._known_resources().get(report.account)
        if resource is None:
            text = f"the offering has no resource with the backend_id {report.account[:100]}"
            raise UnreportedError(Blocked(text, untouched=True))
        # Of a component that the offering has no more, nothing can be taken back.
        ours = [component for component in report.components if component.amount or component.type in types]
        if not ours:
            return {"without usage": 1}
        uuid, month = plain_uuid(resource.uuid), report.when
        rows = self._rows(uuid, month)
        others = self._others(uuid, month, ours, rows)
        receipt = {"unchanged": 1}
        if any(component.type not in rows or rows[component.type].usage != component.amount for component in ours):
            self._write(uuid, month, ours)
            rows = self._rows(uuid, month)
            for component in ours:
                if component.type not in rows or rows[component.type].usage != component.amount:
                    has = rows[component.type].usage if component.type in rows else "nothing"
                    text = f"Waldur accepted {component.amount} {component.type} of {month} and then had {has}"
                    raise UnreportedError(Blocked(text))
            receipt = {"reported": 1}
        for component in ours:
            receipt["users"] = receipt.get("users", 0) + self._report_users(component, rows[component.type], others)
        return receipt

    def _others(
        self, resource: str, month: Month, ours: Sequence[ComponentAmount], rows: Mapping[str, ComponentUsageRow]
    ) -> Mapping[tuple[str, str], Decimal]:
        """What Waldur has of users, by component and name. Raises `UnreportedError` for values of another writer."""
        until = self._settings.replaces_until
        replaces = until is not None and month_bounds(month)[0] <= until
        for component in ours:
            has = rows[component.type].usage if component.type in rows else Decimal(0)
            if has and not replaces and has not in {component.amount, *component.before}:
                sent = f"{component.amount} is sent"
                if component.before:
                    sent = f"{', '.join(map(str, component.before))} was sent before, {sent} now"
                raise self._another_writer(f"{component.type} of {month} is {has}; {sent}")
        if not any(component.users for component in ours):
            return {}
        usages = {(each.component_type, each.username): each.usage for each in self._api.user_usages(month, resource)}
        of_users = {
            (component.type, user.username): {user.usage, *user.before}
            for component in ours
            for user in component.users
        }
        types = {component.type for component in ours}
        for (component_type, user), usage in usages.items():
            if (
                usage
                and not replaces
                and component_type in types
                and usage not in of_users.get((component_type, user), ())
            ):
                raise self._another_writer(
                    f"{component_type} of user {user[:100]} in {month} is {usage}, and was never sent"
                )
        return usages

    def _another_writer(self, what: str) -> UnreportedError:
        text = (
            f"another program writes to this resource: {what}. Stop that program; then set replaces_until of targets."
        )
        return UnreportedError(Blocked(f"{text}{self.name} to replace what it wrote"))

    def _write(self, resource: str, month: Month, ours: Sequence[ComponentAmount]) -> None:
        """Report the amounts, of all components at once: `current_usages` of the resource keeps only these."""
        body: dict[str, Any] = {
            "resource": resource,
            "usages": _usages({component.type: component.amount for component in ours}),
        }
        now = int(self._identity.clock())
        first, end = month_bounds(month)
        if first + _EDGE_S <= now < end - _EDGE_S:
            self._api.set_usage(body)
            return
        if now < first:
            raise UnreportedError(Blocked(f"{month} has not begun by the clock of this host"))
        present = month_of(now)
        before = self._rows(resource, present)
        self._require_date(resource, present, before, now)
        try:
            self._api.set_usage({**body, "date": date_time(min(first + _MID_MONTH_S, now))})
        except UnreportedError as halted:
            if isinstance(halted.outcome, Blocked) and present != month and "date" in halted.outcome.answer:
                outcome = msgspec.structs.replace(halted.outcome, answer=f"{halted.outcome.answer}{_STAFF_ONLY}")
                raise UnreportedError(outcome) from halted
            raise
        if present != month:
            self._require_unchanged(resource, present, before, month)

    def _require_date(self, resource: str, present: Month, rows: Mapping[str, ComponentUsageRow], now: int) -> None:
        """Let the server show that it reads `date`. Raises `UnreportedError` if it does not.

        One that ignores it writes to the present month the values that are there already.
        """
        if self._reads_date:
            return
        usages = _usages({row.type: row.usage for row in rows.values()})
        reply = self._api.try_usage({"resource": resource, "date": date_time(now + _FUTURE_S), "usages": usages})
        if isinstance(reply, Reply) and reply.status == 400 and _names_date(reply.body):
            self._reads_date = True
            return
        if isinstance(reply, Reply) and reply.status // 100 == 2:
            raise UnreportedError(Blocked(_IGNORES_DATE))
        outcome = self._api.outcome(reply)
        if isinstance(outcome, Blocked):
            outcome = Blocked(f"{present} and earlier cannot be told apart: {outcome.answer}")
        raise UnreportedError(outcome)

    def _require_unchanged(
        self, resource: str, present: Month, before: Mapping[str, ComponentUsageRow], month: Month
    ) -> None:
        """Raises `UnreportedError`, after having written back what was there, if a report of another month changed the
        present one."""
        has = {name: row.usage for name, row in self._rows(resource, present).items()}
        had = {name: row.usage for name, row in before.items()}
        if all(has[name] == had.get(name, 0) for name in has) and has.keys() >= had.keys():
            return
        self._api.set_usage({"resource": resource, "usages": _usages(dict.fromkeys(has, Decimal(0)) | had)})
        text = f"Waldur wrote a report of {month} into {present}. The earlier values of {present} were written back"
        raise UnreportedError(Unauthorised(text, misdirected=True))

    def _report_users(
        self, component: ComponentAmount, row: ComponentUsageRow, found: Mapping[tuple[str, str], Decimal]
    ) -> int:
        """Report the shares of users, and zero for those of another writer that are replaced; return how many."""
        if not component.users:
            return 0
        amounts = {user: Decimal("0.00") for (name, user), usage in found.items() if name == component.type and usage}
        amounts |= {each.username: each.usage for each in component.users}
        changed = {user: usage for user, usage in amounts.items() if found.get((component.type, user)) != usage}
        if changed:
            self._api.set_user_usages(plain_uuid(row.uuid), changed)
        return len(changed)


def _usages(amounts: Mapping[str, Decimal]) -> list[dict[str, str]]:
    return [{"type": name, "amount": f"{amount:f}"} for name, amount in amounts.items()]


def _names_date(body: bytes) -> bool:
    """Whether an error is about the field `date`."""
    try:
        return "date" in msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
