"""A double of Waldur on loopback, which keeps usages in memory; written from the facts on Waldur.

It replaces the month's row of a component, keeps users that are not named, ignores filters that it does not know, and
adds the old value to the new one where it checks a total limit. `reads_date` False: a server of 2024.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import parse_qs

from formats.calendar import Month, month_of

OFFERING: Final = uuid.uuid5(uuid.NAMESPACE_URL, "offering").hex
LIMIT: Final = Decimal(100)
COMPONENTS: Final = {
    "cpu_k_hours": "usage",
    "gpu_hours": "usage",
    "capped": "usage",
    "storage_gb": "limit",
    "fee": "fixed",
}
"""The components of the offering, each with its billing type; `capped` has the `LIMIT`."""
BACKFILL: Final = (
    "Service providers can only specify date for limit-based or prepaid billing components when backfilling past "
    "billing periods."
)
_USABLE: Final = ("OK", "Updating", "Terminating")
WaldurFault = Callable[[str, str], str]
"""Called with method and path of each request; answers what goes wrong: a status, `cut` (nothing is stored), or
`stored` (cut, but stored), or a text that begins with `<`, the body of a 200; empty: nothing."""


class _UsageRefusedError(Exception):
    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.body = {field: [text]} if field else [text]


class WaldurDouble:
    """See the module. `rows`: amounts by resource, component, and first day of the month; `users`: by the key of a row
    and username."""

    def __init__(self, *accounts: str) -> None:
        self.resources = {
            name: {"uuid": uuid.uuid5(uuid.NAMESPACE_URL, name).hex, "backend_id": name, "state": "OK"}
            for name in accounts
        }
        self.rows: dict[tuple[str, str, str], Decimal] = {}
        self.users: dict[tuple[tuple[str, str, str], str], Decimal] = {}
        self.requests: list[tuple[str, str, Any]] = []
        self.fault: WaldurFault = lambda _method, _path: ""
        self.now: Callable[[], float] = lambda: 0
        self.components = dict(COMPONENTS)
        """The billing types of the components of the offering."""
        self.limits = {"capped": LIMIT}
        """The total limits of components."""
        self.only_providers = False
        """Whether it takes the token of its staff for one of a provider."""
        self.reads_date = True
        self.bulk = True
        """Whether it knows `set_user_usages`."""
        self.page = 300
        """The largest page that it gives."""
        self.lock = threading.Lock()
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Serve until the end of the `with` statement."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("WaldurHandler", (_WaldurHandler,), {"double": self}))
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def amounts(self, month: Month) -> dict[tuple[str, str, str], Decimal]:
        """What it has of a month, by account, component, and user (empty: of all users), without zeros."""
        names = {each["uuid"]: name for name, each in self.resources.items()}
        found = {(names[of], type_, ""): usage for (of, type_, day), usage in self.rows.items() if day == f"{month}-01"}
        found |= {
            (names[of], type_, user): usage
            for ((of, type_, day), user), usage in self.users.items()
            if day == f"{month}-01"
        }
        return {key: usage for key, usage in found.items() if usage}

    def write(self, account: str, component: str, month: Month, usage: str, user: str = "") -> None:
        """Change a value behind everybody's back."""
        key = (self.resources[account]["uuid"], component, f"{month}-01")
        if user:
            self.users[key, user] = Decimal(usage)
        else:
            self.rows[key] = Decimal(usage)

    # --- the API

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, token: str) -> tuple[int, Any]:
        """Status and body of the answer to a request."""
        if token not in {"Token provider", "Token staff"}:
            return 401, {"detail": "Invalid token."}
        parts = path.removeprefix("/api/").strip("/").split("/")
        try:
            return self._got(parts, query) if method == "GET" else self._posted(parts, body, token)
        except _UsageRefusedError as error:
            return 400, error.body

    def _got(self, parts: list[str], query: dict[str, list[str]]) -> tuple[int, Any]:
        match parts:
            case ["marketplace-provider-offerings", of] if of == OFFERING:
                listed = [{"type": name, "billing_type": billing} for name, billing in self.components.items()]
                return 200, {"uuid": of, "components": listed}
            case ["marketplace-provider-resources"]:
                return 200, [each | {"offering_uuid": OFFERING} for each in self.resources.values()]
            case ["marketplace-component-usages"]:
                return 200, self._filtered(map(self._row, self.rows), query, "billing_period")
            case ["marketplace-component-user-usages"]:
                return 200, self._filtered(self._user_rows(), query, "component_usage__billing_period")
        return 404, {"detail": "Not found."}

    def _posted(self, parts: list[str], body: Any, token: str) -> tuple[int, Any]:
        match parts:
            case ["marketplace-component-usages", "set_usage"]:
                self._set_usage(body, is_staff=token == "Token staff" and not self.only_providers)
                return 201, None
            case ["marketplace-component-usages", usage, "set_user_usages"] if self.bulk:
                return self._set_users(usage, body["usages"])
            case ["marketplace-component-usages", usage, "set_user_usage"]:
                return self._set_users(usage, [body])
        return 404, {"detail": "Not found."}

    def _set_usage(self, body: dict[str, Any], *, is_staff: bool) -> None:
        now = instant = int(self.now())
        amounts = {each["type"]: self._amount(each["amount"]) for each in body["usages"]}
        resource = next((each for each in self.resources.values() if each["uuid"] == body["resource"]), None)
        if resource is None:
            raise _UsageRefusedError("resource", "Object with this uuid does not exist.")
        if self.reads_date and "date" in body:
            instant = int(datetime.fromisoformat(body["date"]).astimezone(UTC).timestamp())
            if instant > now:
                raise _UsageRefusedError("date", "Cannot submit usage for future dates.")
            is_usage = any(self.components.get(name) == "usage" for name in amounts)
            if month_of(instant) < month_of(now) and is_usage and not is_staff:
                raise _UsageRefusedError("date", BACKFILL)
        if resource["state"] not in _USABLE:
            raise _UsageRefusedError("resource", "Resource is not in valid state.")
        if unknown := sorted(name for name in amounts if self.components.get(name) not in {"usage", "limit"}):
            raise _UsageRefusedError("non_field_errors", f"These components are invalid: {', '.join(unknown)}.")
        for name, amount in amounts.items():
            there = sum(usage for (of, type_, _), usage in self.rows.items() if (of, type_) == (resource["uuid"], name))
            limit = self.limits.get(name)
            if limit is not None and there + amount > limit:
                text = f"Total amount exceeds limit. Total amount: {there + amount}, limit: {limit}."
                raise _UsageRefusedError("", text)
        for name, amount in amounts.items():
            self.rows[resource["uuid"], name, f"{month_of(instant)}-01"] = amount

    def _set_users(self, usage: str, items: list[dict[str, str]]) -> tuple[int, Any]:
        key = next((key for key in self.rows if _id_of(key) == usage.replace("-", "")), None)
        if key is None:
            return 404, {"detail": "Not found."}
        if any(not 0 < len(each["username"]) <= 100 for each in items):
            raise _UsageRefusedError("username", "Ensure this field has no more than 100 characters.")
        self.users |= {(key, each["username"]): self._amount(each["usage"]) for each in items}
        return 201, None

    @staticmethod
    def _amount(text: str) -> Decimal:
        amount = Decimal(text)
        assert isinstance(text, str)
        if amount.as_tuple().exponent != -2 or len(amount.as_tuple().digits) > 20:
            raise _UsageRefusedError("amount", "Ensure that there are no more than 2 decimal places.")
        return amount

    def _row(self, key: tuple[str, str, str]) -> dict[str, Any]:
        of, name, day = key
        usage = str(self.rows[key])
        return {"uuid": _id_of(key), "type": name, "usage": usage, "resource_uuid": of, "billing_period": day}

    def _user_rows(self) -> Iterator[dict[str, Any]]:
        for ((of, name, day), user), usage in self.users.items():
            yield {
                "username": user, "usage": float(usage), "component_type": name, "resource_uuid": of,
                "billing_period": day,
            }  # fmt: skip

    @staticmethod
    def _filtered(rows: Iterator[dict[str, Any]], query: dict[str, list[str]], period: str) -> list[dict[str, Any]]:
        days, resources = query.get(period), query.get("resource_uuid")
        return [
            row
            for row in rows
            if (days is None or row["billing_period"] in days)
            and (resources is None or row["resource_uuid"] in resources)
        ]


def _id_of(key: tuple[str, str, str]) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, "/".join(key)).hex


def settings_of(double: WaldurDouble, folder: Path, token: str = "staff", **more: Any) -> dict[str, Any]:
    """A target in the configuration that sends there."""
    file = folder / f"{token}.token"
    file.write_text(token)
    file.chmod(0o600)
    return {
        "type": "waldur", "url": double.url, "offering": OFFERING, "credentials": {"token_file": str(file)}, **more,
    }  # fmt: skip


class _WaldurHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    double: WaldurDouble

    def log_message(self, *_: object) -> None:
        pass

    def do_any(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = json.loads(raw) if raw else None
        path, _, query = self.path.partition("?")
        with self.double.lock:
            self.double.requests.append((self.command, self.path, body))
            fault = self.double.fault(self.command, path)
            if fault.isdigit() or fault.startswith("<"):
                self._send(int(fault) if fault.isdigit() else 200, fault.encode(), {})
                return
            asked = parse_qs(query)
            token = self.headers.get("Authorization", "")
            answer = (0, None) if fault == "cut" else self.double.answer(self.command, path, asked, body, token)
        if fault in {"cut", "stored"}:
            self.close_connection = True
            return
        status, content = answer
        headers = {}
        if isinstance(content, list) and status == 200:
            headers["X-Result-Count"] = str(len(content))
            size = min(int(asked.get("page_size", ["10"])[0]), self.double.page)
            first = size * (int(asked.get("page", ["1"])[0]) - 1)
            content = content[first : first + size]
        self._send(status, b"" if content is None else json.dumps(content).encode(), headers)

    do_GET = do_POST = do_any  # noqa: N815 - names of the library

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
