"""The ARGO Messaging Service and its token service, over the part of their interface that publishers and readers use.

Order of checks and texts of errors are those of the real service (the facts on receivers, 4). Every published message
is kept. Two things are simpler: a pull is answered at once with the messages that exist, and every certificate of the
PKI gets a token unless `authorised` names those that do.

"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from urllib.parse import parse_qs

import msgspec

from publisher.simulator.apel import ApelServer
from publisher.simulator.faults import Faults, Service, with_faults
from publisher.simulator.server import Request, Response

_JSON = "application/json; charset=utf-8"
_STATUS = {
    400: ("Invalid Message Arguments", "INVALID_ARGUMENT"),
    401: ("Unauthorized", "UNAUTHORIZED"),
    403: ("Access to this resource is forbidden", "FORBIDDEN"),
    404: ("Topic doesn't exist", "NOT_FOUND"),
    408: ("ack timeout", "TIMEOUT"),
    409: ("Resource already exists", "ALREADY_EXISTS"),
    413: ("Message size is too large", "INVALID_ARGUMENT"),
    500: ("Backend Error", "INTERNAL_SERVER_ERROR"),
}


class AmsError(Exception):
    """A request is refused."""

    def __init__(self, code: int, message: str, status: str) -> None:
        super().__init__(message)
        self.code, self.message, self.status = code, message, status

    def response(self) -> Response:
        """The answer to the request."""
        return json_response(self.code, {"error": {"code": self.code, "message": self.message, "status": self.status}})


def status_response(code: int) -> Response:
    """The answer with this status, as the service writes it; for other statuses as its load balancer does."""
    known = _STATUS.get(code)
    if known is None:
        return Response(code, f"<html><body><h1>{code}</h1>\n</body></html>\n".encode())
    return AmsError(code, *known).response()


def unauthorized() -> AmsError:
    """The request has no token, or an unknown one."""
    return AmsError(401, *_STATUS[401])


def forbidden() -> AmsError:
    """The user of the token may not do this."""
    return AmsError(403, *_STATUS[403])


def backend_error() -> AmsError:
    """The broker did not accept the message."""
    return AmsError(500, *_STATUS[500])


def no_route() -> Response:
    """The service has nothing at this address."""
    return Response(404, b"404 page not found\n", "text/plain; charset=utf-8")


def wrong_method() -> Response:
    """This address has other methods only."""
    return Response(405, b"", "text/plain; charset=utf-8")


def json_response(code: int, content: object) -> Response:
    """JSON as the service writes it, indented by three spaces."""
    return Response(code, json.dumps(content, indent=3).encode(), _JSON)


BODY_LIMIT_BYTES = 16 * 2**20
STORED_LIMIT_BYTES = 1_500_000
"""The broker's limit for the JSON of one stored message."""

_INVALID_STORED = "Message retrieved from broker network has invalid JSON Structure"
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_TOKEN_PATH = re.compile(r"/v1/service-types/ams/hosts/([^/]+):authx509")
_TOPIC = re.compile(r"topics/([^/]+?)(?::(publish))?")
_SUBSCRIPTION = re.compile(r"subscriptions/([^/]+?)(?::(pull|acknowledge))?")
_PROJECT = re.compile(r"/v1/projects/([^/]+)/(.*)")


class _Published(msgspec.Struct):
    data: str | None = None
    attributes: dict[str, str] | None = None


class _PublishBody(msgspec.Struct):
    messages: list[_Published] | None = None


class _PullBody(msgspec.Struct, rename="camel"):
    max_messages: str = "1"
    return_immediately: str = "false"


class _AckBody(msgspec.Struct, rename="camel"):
    ack_ids: list[str] | None = None


class StoredMessage(msgspec.Struct, frozen=True, gc=False):
    """A message as the broker stores it: `data` is base64 as received, `published` in epoch seconds."""

    message_id: str
    data: str
    attributes: dict[str, str]
    published: float
    publisher_dn: str

    def content(self) -> bytes:
        """The decoded message; empty if `data` is not base64."""
        try:
            return base64.b64decode(self.data, validate=True)
        except binascii.Error:
            return b""


class _Subscription(msgspec.Struct):
    topic: str
    offset: int = 0
    pulled_to: int = -1
    pulled_at: float = 0.0


class Ams:
    """One project with its topics and their subscriptions (`topics`: subscriptions by topic).

    `authorised`: the DNs (slash form) that get a token; `publishers`: those that may publish; None: all. `oversize` is
    the status for a message that the broker cannot store: 500 as the real one answers today, or 413 as documented.
    `eager`: open every message when it arrives, not when `apel.holdings()` is called.
    """

    def __init__(
        self,
        faults: Faults,
        apel: ApelServer,
        *,
        project: str = "accounting",
        topics: Mapping[str, Iterable[str]],
        hosts: Iterable[str] = ("localhost", "127.0.0.1"),
        authorised: Iterable[str] | None = None,
        publishers: Iterable[str] | None = None,
        oversize: int = 500,
        ack_deadline_s: float = 10.0,
        eager: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.project = project
        self.apel = apel
        self.oversize = oversize
        self._faults = faults
        self._topics: dict[str, list[StoredMessage]] = {topic: [] for topic in topics}
        self._subscriptions = {name: _Subscription(topic) for topic, names in topics.items() for name in names}
        self._hosts = frozenset(hosts)
        self._authorised = None if authorised is None else frozenset(authorised)
        self._publishers = None if publishers is None else frozenset(publishers)
        self._ack_deadline_s = ack_deadline_s
        self._eager = eager
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens: dict[str, str] = {}
        self.posts = self.refused = self.received_bytes = 0

    def expire_tokens(self) -> None:
        """Refuse every token issued so far (401)."""
        with self._lock:
            self._tokens.clear()

    def reset(self) -> None:
        """Delete messages, offsets, and what was loaded from them; tokens stay valid."""
        with self._lock:
            for messages in self._topics.values():
                messages.clear()
            for name, subscription in self._subscriptions.items():
                self._subscriptions[name] = _Subscription(subscription.topic)
            self.posts = self.refused = self.received_bytes = 0
            self.apel.reset()

    def messages(self, topic: str | None = None) -> list[StoredMessage]:
        """The messages of a topic, or of all topics."""
        with self._lock:
            return [message for name, messages in self._topics.items() if topic in {None, name} for message in messages]

    def stats(self) -> dict[str, int]:
        """Numbers of stored messages, publish calls, and refused calls, and the bytes of their bodies."""
        with self._lock:
            kept = sum(len(messages) for messages in self._topics.values())
            return {"messages": kept, "posts": self.posts, "refused": self.refused, "bytes": self.received_bytes}

    def handle(self, request: Request) -> Response:
        """Answer a request under `/v1/`."""
        token_of = _TOKEN_PATH.fullmatch(request.path)
        try:
            if token_of is not None:
                host = token_of.group(1)
                return self._with_faults("token", lambda: b"", lambda: self._token(request, host))
            match = _PROJECT.fullmatch(request.path)
            if match is None:
                return no_route()
            return self._in_project(request, *match.groups())
        except AmsError as error:
            return error.response()

    def _token(self, request: Request, host: str) -> Response:
        if request.method != "GET":
            return no_route()
        if request.peer is None:
            raise AmsError(400, "No certificate provided", "BAD REQUEST")
        if host not in self._hosts:
            raise AmsError(404, "Host was not found", "NOT FOUND")
        if request.peer.problem:
            raise AmsError(403, f"Access to this resource is forbidden: {request.peer.problem}", "ACCESS_FORBIDDEN")
        dn = request.peer.dn
        if self._authorised is not None and dn not in self._authorised:
            raise AmsError(404, "Binding was not found", "NOT FOUND")
        with self._lock:
            token = next((known for known, of in self._tokens.items() if of == dn), None) or secrets.token_hex(32)
            self._tokens[token] = dn
        return json_response(200, {"token": token})

    def _in_project(self, request: Request, project: str, rest: str) -> Response:
        topic, subscription = _TOPIC.fullmatch(rest), _SUBSCRIPTION.fullmatch(rest)
        match = topic or subscription
        listing = rest in {"topics", "subscriptions"}
        if match is None and not listing:
            return no_route()
        kind = "topic" if rest.startswith("topic") else "subscription"
        name, action = match.groups() if match is not None else ("", None)
        if request.method != ("POST" if action else "GET"):
            return wrong_method()
        for what, given in (("project", project), *(((kind, name),) if match is not None else ())):
            if not _NAME.fullmatch(given):
                raise AmsError(400, f"Invalid {what} name", "INVALID_ARGUMENT")
        if not _key(request):
            raise unauthorized()
        if project != self.project:
            raise AmsError(404, "project doesn't exist", "NOT_FOUND")
        if listing:
            self._user(request)
            return self._list(rest)
        if action == "publish":
            return self._post(request, name)
        if action is not None:
            work = self._pull if action == "pull" else self._acknowledge
            return self._with_faults("pull", lambda: b"", lambda: work(request, name))
        self._user(request)
        return self._describe(kind, name)

    def _post(self, request: Request, topic: str) -> Response:
        with self._lock:
            self.posts += 1
            self.received_bytes += len(request.body)
        response = self._with_faults("publish", lambda: _contents(request.body), lambda: self._publish(request, topic))
        if response.status != 200:
            with self._lock:
                self.refused += 1
        return response

    def _with_faults(self, service: Service, content: Callable[[], bytes], work: Callable[[], Response]) -> Response:
        def answered() -> Response:
            try:
                return work()
            except AmsError as error:
                return error.response()

        return with_faults(self._faults, service, content, answered, status_response, self.expire_tokens)

    def _publish(self, request: Request, topic: str) -> Response:
        dn = self._user(request)
        if topic not in self._topics:
            raise AmsError(404, "Topic doesn't exist", "NOT_FOUND")
        if self._publishers is not None and dn not in self._publishers:
            raise forbidden()
        try:
            published = msgspec.json.decode(request.body, type=_PublishBody).messages or []
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AmsError(400, "Invalid Message Arguments", "INVALID_ARGUMENT") from error
        ids = [self._store(topic, message, dn) for message in published]  # one by one: those before a failure stay
        return json_response(200, {"messageIds": ids})

    def _store(self, topic: str, message: _Published, dn: str) -> str:
        data, attributes = message.data or "", message.attributes or {}
        size = len(data) + sum(len(key) + len(value) + 6 for key, value in attributes.items()) + 120
        if size > STORED_LIMIT_BYTES:
            if self.oversize == 413:
                raise AmsError(413, "Message size is too large", "INVALID_ARGUMENT")
            raise backend_error()
        with self._lock:
            messages = self._topics[topic]
            stored = StoredMessage(str(len(messages)), data, attributes, time.time(), dn)
            messages.append(stored)
        self.apel.receive(stored.content, eager=self._eager)
        return stored.message_id

    def _pull(self, request: Request, name: str) -> Response:
        self._user(request)
        subscription = self._known(name)
        try:
            given = msgspec.json.decode(request.body, type=_PullBody).max_messages
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AmsError(400, "Invalid Pull Parameters Arguments", "INVALID_ARGUMENT") from error
        count = int(given) if given.isascii() and given.isdigit() else 1
        with self._lock:
            start = subscription.offset
            messages = self._topics[subscription.topic][start : start + max(count, 0)]
            if any(_breaks_json(value) for message in messages for value in message.attributes.values()):
                raise AmsError(500, _INVALID_STORED, "INTERNAL_SERVER_ERROR")
            if messages:
                subscription.pulled_to, subscription.pulled_at = start + len(messages) - 1, self._clock()
        received = [
            {"ackId": f"projects/{self.project}/subscriptions/{name}:{offset}", "message": _shown(message)}
            for offset, message in enumerate(messages, start)
        ]
        return json_response(200, {"receivedMessages": received})

    def _acknowledge(self, request: Request, name: str) -> Response:
        self._user(request)
        pattern = re.compile(rf"projects/{re.escape(self.project)}/subscriptions/{re.escape(name)}:([0-9]{{1,15}})")
        try:
            given = msgspec.json.decode(request.body, type=_AckBody).ack_ids or []
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise AmsError(400, "Invalid ack parameter", "INVALID_ARGUMENT") from error
        subscription = self._known(name)
        matches = [pattern.fullmatch(ack) for ack in given]
        offsets = [int(match.group(1)) for match in matches if match is not None]
        if not offsets or len(offsets) != len(matches):
            raise AmsError(400, "Invalid ack id", "INVALID_ARGUMENT")
        with self._lock:
            if subscription.pulled_to < subscription.offset:
                raise AmsError(500, "no ack pending", "INTERNAL_SERVER_ERROR")
            if not subscription.offset <= max(offsets) <= subscription.pulled_to:
                raise AmsError(500, "wrong ack", "INTERNAL_SERVER_ERROR")
            if int(self._clock() - subscription.pulled_at) > self._ack_deadline_s:
                raise AmsError(408, "ack timeout", "TIMEOUT")
            subscription.offset = max(offsets) + 1
        return json_response(200, {})

    def _user(self, request: Request) -> str:
        with self._lock:
            dn = self._tokens.get(_key(request))
        if dn is None:
            raise unauthorized()
        return dn

    def _known(self, name: str) -> _Subscription:
        if name not in self._subscriptions:
            raise AmsError(404, "Subscription doesn't exist", "NOT_FOUND")
        return self._subscriptions[name]

    def _describe(self, kind: str, name: str) -> Response:
        if kind == "topic":
            if name not in self._topics:
                raise AmsError(404, "Topic doesn't exist", "NOT_FOUND")
            return json_response(200, {"name": f"/projects/{self.project}/topics/{name}"})
        topic = self._known(name).topic
        return json_response(200, self._subscription_shown(name, topic))

    def _list(self, kind: str) -> Response:
        if kind == "topics":
            listed: list[object] = [{"name": f"/projects/{self.project}/topics/{name}"} for name in self._topics]
        else:
            listed = [self._subscription_shown(name, sub.topic) for name, sub in self._subscriptions.items()]
        return json_response(200, {kind: listed, "nextPageToken": "", "totalSize": len(listed)})

    def _subscription_shown(self, name: str, topic: str) -> dict[str, object]:
        return {
            "name": f"/projects/{self.project}/subscriptions/{name}",
            "topic": f"/projects/{self.project}/topics/{topic}",
            "pushConfig": {"pushEndpoint": "", "retryPolicy": {}},
            "ackDeadlineSeconds": int(self._ack_deadline_s),
        }


def too_large() -> Response:
    """The answer to a body that is larger than the service accepts."""
    return AmsError(413, "Message size is too large", "INVALID_ARGUMENT").response()


def _key(request: Request) -> str:
    """The token of a request: of its header, else of its address, where ARC's publisher puts it."""
    return request.headers.get("x-api-key") or parse_qs(request.query).get("key", [""])[0]


def _contents(body: bytes) -> bytes:
    """The content of the messages of a publish call, for faults that depend on it."""
    try:
        messages = msgspec.json.decode(body, type=_PublishBody).messages
        return b"\n".join(base64.b64decode(message.data or "") for message in messages or ())
    except (msgspec.MsgspecError, UnicodeDecodeError, binascii.Error):
        return body


def _breaks_json(value: str) -> bool:
    """The real service does not escape the values of attributes: such a message fails every pull from then on."""
    return any(character in '"\\' or character < " " for character in value)


def _shown(message: StoredMessage) -> dict[str, object]:
    published = datetime.fromtimestamp(message.published, UTC)
    return {
        "messageId": message.message_id,
        **({"attributes": message.attributes} if message.attributes else {}),
        "data": message.data,
        "publishTime": f"{published:%Y-%m-%dT%H:%M:%S.%f}000Z",
    }
