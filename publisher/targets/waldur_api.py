"""The requests to Waldur that its target needs (facts on Waldur), and what their answers mean.

A filter that the server does not know is ignored, and everything comes: what comes back is filtered again here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeVar
from urllib.parse import urlencode

import msgspec

from formats.calendar import Month
from publisher.security.authorisation import AuthorisedClient
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.targets import answers
from publisher.targets.base import Blocked, Outcome, Refused, Transient, Unauthorised, Unknown
from publisher.targets.identity import Identity

USAGES: Final = "marketplace-component-usages/"
_USER_USAGES: Final = "marketplace-component-user-usages/"
_RESOURCES: Final = "marketplace-provider-resources/"
_OFFERINGS: Final = "marketplace-provider-offerings/"
_PAGE: Final = 100
_MOST_PAGES: Final = 10_000
_USERS_AT_ONCE: Final = 500
_JSON: Final = {"Content-Type": "application/json", "Accept": "application/json"}
_USABLE: Final = ("OK", "Updating", "Terminating")


class UnreportedError(Exception):
    """Nothing more is sent of a message; the outcome says why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(getattr(outcome, "answer", ""))
        self.outcome = outcome


class OfferingComponent(msgspec.Struct, frozen=True):
    """A component of an offering. Waldur takes reports of those with the billing type `usage` or `limit`."""

    type: str
    billing_type: str = "usage"


class _Offering(msgspec.Struct, frozen=True):
    components: list[OfferingComponent] = []


class OfferingResource(msgspec.Struct, frozen=True):
    """A resource of an offering; `backend_id`: the account in the batch system."""

    uuid: str
    backend_id: str | None = ""
    state: str | None = ""
    offering_uuid: str | None = None


class ComponentUsageRow(msgspec.Struct, frozen=True):
    """The amount of a component of a resource in a month (`billing_period`: its first day)."""

    uuid: str
    type: str
    usage: Decimal
    resource_uuid: str
    billing_period: str


class UserUsageRow(msgspec.Struct, frozen=True):
    """The amount of a user of the same."""

    username: str
    usage: Decimal
    component_type: str
    resource_uuid: str
    billing_period: str


_Row = TypeVar("_Row", OfferingResource, ComponentUsageRow, UserUsageRow)


def first_day(month: Month) -> str:
    """The first day of a month, as Waldur writes a billing period."""
    return f"{month}-01"


def plain_uuid(value: str) -> str:
    """A UUID as Waldur writes it: 32 hexadecimal digits."""
    return value.replace("-", "").lower()


class WaldurApi:
    """Requests about one offering. All raise `UnreportedError` if the answer is not a success."""

    def __init__(self, url: str, offering: str, client: AuthorisedClient, identity: Identity) -> None:
        self._base = f"{url.rstrip('/').removesuffix('/api')}/api/"
        self._offering = offering
        self._client = client
        self._identity = identity

    # --- reading

    def components(self) -> list[OfferingComponent]:
        """The components of the offering."""
        reply = self._get(f"{self._base}{_OFFERINGS}{self._offering}/")
        offering: _Offering = self._decoded(reply, _Offering)
        return offering.components

    def resources(self) -> list[OfferingResource]:
        """The resources of the offering, those that take reports first."""
        query = {"offering_uuid": self._offering}
        fields = [("field", name) for name in OfferingResource.__struct_fields__]
        rows = self._all(_RESOURCES, [*query.items(), *fields], OfferingResource)
        ours = [row for row in rows if row.offering_uuid is None or plain_uuid(row.offering_uuid) == self._offering]
        return sorted(ours, key=lambda row: row.state not in _USABLE)

    def usages(self, month: Month, resource: str | None = None) -> list[ComponentUsageRow]:
        """The amounts of a month: of a resource, or of all."""
        query = [*self._of(resource), ("billing_period", first_day(month))]
        return _in_month(self._all(USAGES, query, ComponentUsageRow), month, resource)

    def user_usages(self, month: Month, resource: str | None = None) -> list[UserUsageRow]:
        """The amounts of users in a month: of a resource, or of all."""
        query = [*self._of(resource), ("component_usage__billing_period", first_day(month))]
        return _in_month(self._all(_USER_USAGES, query, UserUsageRow), month, resource)

    def _of(self, resource: str | None) -> list[tuple[str, str]]:
        return [("offering_uuid", self._offering) if resource is None else ("resource_uuid", resource)]

    def _all(self, path: str, query: Sequence[tuple[str, str]], row: type[_Row]) -> list[_Row]:
        rows: list[_Row] = []
        for page in range(1, _MOST_PAGES):
            asked = urlencode([*query, ("page", str(page)), ("page_size", str(_PAGE))])
            reply = self._get(f"{self._base}{path}?{asked}")
            listed: list[_Row] = self._decoded(reply, list[row])  # type: ignore[valid-type]
            rows += listed
            count = reply.headers.get("x-result-count", "")
            left = int(count) - len(rows) if count.isascii() and count.isdigit() else len(listed) // _PAGE
            if left <= 0:
                return rows
            if not listed:
                break
        raise UnreportedError(Transient(f"{path} of Waldur ended after {len(rows):,} rows, before its end"))

    def _get(self, url: str) -> Reply:
        reply = self._client.request("GET", url, headers=_JSON)
        if isinstance(reply, Reply) and reply.status == 200:
            return reply
        outcome = self.outcome(reply)
        if isinstance(outcome, Unknown | Refused | Blocked):  # reading stores nothing
            outcome = Transient(outcome.answer)
        raise UnreportedError(outcome)

    def _decoded(self, reply: Reply, form: Any) -> Any:
        try:
            return msgspec.json.decode(reply.body, type=form)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            text = f"the answer is not the JSON that Waldur gives ({error}): {answers.describe(reply)}. Check the URL"
            raise UnreportedError(Transient(text)) from error

    # --- writing

    def set_usage(self, body: Mapping[str, Any]) -> None:
        """Report the amounts of a resource for a month."""
        reply = self.try_usage(body)
        if not isinstance(reply, Reply) or reply.status // 100 != 2:
            raise UnreportedError(self.outcome(reply))

    def try_usage(self, body: Mapping[str, Any]) -> Reply | Failure:
        """The same; return the answer."""
        content = msgspec.json.encode(body)
        return self._client.request("POST", f"{self._base}{USAGES}set_usage/", content=content, headers=_JSON)

    def set_user_usages(self, usage: str, amounts: Mapping[str, Decimal]) -> None:
        """Report the amounts of users for the usage of a component, by its UUID. Older servers take one user a
        request."""
        url = f"{self._base}{USAGES}{usage}/"
        rows = [{"username": user, "usage": str(amount)} for user, amount in amounts.items()]
        for begin in range(0, len(rows), _USERS_AT_ONCE):
            some = rows[begin : begin + _USERS_AT_ONCE]
            reply = self._post(f"{url}set_user_usages/", {"usages": some})
            if isinstance(reply, Reply) and reply.status in {404, 405}:
                for row in some:
                    self._require_taken(self._post(f"{url}set_user_usage/", row))
            else:
                self._require_taken(reply)

    def _post(self, url: str, body: Any) -> Reply | Failure:
        return self._client.request("POST", url, content=msgspec.json.encode(body), headers=_JSON)

    def _require_taken(self, reply: Reply | Failure) -> None:
        if not isinstance(reply, Reply) or reply.status // 100 != 2:
            raise UnreportedError(self.outcome(reply))

    def outcome(self, reply: Reply | Failure) -> Outcome:
        """What an answer that is not a success means. 400 is about the state of the resource, its limits, or its
        period, all of which change there: nothing of it is in the data."""
        if isinstance(reply, Failure):
            return answers.of_failure(reply)
        if reply.status == 400 and not answers.refuses_certificate(reply):
            return Blocked(answers.describe(reply))
        outcome = answers.of_status(reply, self._identity.clock(), hint=answers.REFUSED)
        if isinstance(outcome, Unauthorised) and outcome.misdirected:
            return Unauthorised(f"{outcome.answer}, and `offering`", misdirected=True)
        return outcome


def _in_month(rows: Sequence[Any], month: Month, resource: str | None) -> list[Any]:
    """Those of a month and resource; with numbers only."""
    day = first_day(month)
    return [
        row
        for row in rows
        if row.billing_period[:10] == day
        and (resource is None or plain_uuid(row.resource_uuid) == resource)
        and row.usage.is_finite()
    ]
