"""ARGO Messaging Service, the way into APEL: one signed message a call, as SSM sends them.

The token service gives a token for our certificate; a refused token is renewed once. The returned message id is the
receipt: the broker has the message, APEL has not counted it yet (facts/receivers.md 4).
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import msgspec

from publisher.config.targets import AmsSettings
from publisher.finding import Finding
from publisher.security.exchange import Failure
from publisher.security.http import Reply
from publisher.security.secret_text import without
from publisher.targets import answers
from publisher.targets.base import Accepted, Message, Outcome, Oversized, Refused, Transient, Unauthorised, Unknown
from publisher.targets.identity import Identity, TargetContext, largest_payload

_TOKEN_PORT = 8443
MOST_BODY_BYTES = 1_400_000
"""The broker stores 1 500 000 bytes including attributes, and answers larger messages with a misleading 500."""

_MOST_ID_CHARACTERS = 100
_NOT_IN_ID = re.compile(r"[^A-Za-z0-9/_.-]")
_TOKEN = re.compile(r"[\x21-\x7e]{1,4096}")
_PIECE_BYTES = 3 << 14
_BODY_START, _BODY_MIDDLE, _BODY_END = b'{"messages":[{"attributes":{"empaid":"', b'"},"data":"', b'"}]}'


class _TokenReply(msgspec.Struct):
    token: str


class _PublishReply(msgspec.Struct):
    message_ids: list[str] = msgspec.field(name="messageIds")


class AmsTarget:
    """One topic of one messaging service."""

    kind = "ams"

    def __init__(self, name: str, settings: AmsSettings, context: TargetContext) -> None:
        """Raises `ConfigError` for a URL that would send the token in plain text."""
        self.name = name
        base = settings.url.rstrip("/")
        host = urlsplit(base).hostname or ""
        bracketed = f"[{host}]" if ":" in host else host
        token_base = (settings.auth_url or f"https://{bracketed}:{_TOKEN_PORT}").rstrip("/")
        self._base_url = base
        self._token_url = f"{token_base}/v1/service-types/ams/hosts/{bracketed}:authx509"
        self._publish_url = f"{base}/v1/projects/{settings.project}/topics/{settings.topic}:publish"
        self._encrypt_to = settings.encrypt_to
        self._limit_bytes = min(settings.batch_bytes, MOST_BODY_BYTES)
        self._identity = Identity(settings.credentials, context)
        self._client = self._identity.client(base, timeout_s=settings.timeout, proxy=settings.proxy)
        self._token_client = self._identity.client(token_base, timeout_s=settings.timeout, proxy=settings.proxy)
        self._token = ""

    def payload_limit_bytes(self) -> int | None:
        """The configured size, less signature, encryption, base64, and JSON. Raises `CredentialError`."""
        signer = self._identity.signer(self._encrypt_to)
        return largest_payload(self._limit_bytes, lambda size: body_size_bound(signer.size_bound(size)))

    def post(self, message: Message) -> Outcome:
        """Sign and publish. See `publisher.targets.base.Target.post`."""
        if self._identity.has_expired():
            self.close()
        body = Body(message.batch_id, self._identity.signer(self._encrypt_to).sign_in_parts(message.payload))
        if len(body) > self._limit_bytes:
            answer = f"{len(body)} bytes with signature and base64, of {self._limit_bytes} allowed"
            return Oversized(answer, measured=True)
        outcome, status = self._publish(body)
        if status == 401:
            self._token = ""
            outcome, status = self._publish(body)
        return outcome

    def check(self) -> list[Finding]:
        """Fetches a token, and asks for the topic with it: publishers may not read it, but a wrong name shows."""
        findings = answers.certificate(self.name, self._identity)
        if answers.is_red(findings):
            return findings
        findings += answers.encryption(self.name, self._identity, self._encrypt_to)
        reply = self._token_client.request("GET", self._token_url)
        findings += answers.reached(self.name, self._token_url, reply, self._identity.clock(), expected={200})
        registered = "If a token is refused: register this name in GOCDB as an endpoint of type glite-APEL"
        refused = isinstance(reply, Reply) and answers.is_red(findings)
        findings.append(answers.registration(self.name, self._identity, registered, "red" if refused else "green"))
        if not answers.is_red(findings):
            refusal = self._authenticate()
            topic_url = self._publish_url.removesuffix(":publish")
            topic = self._asked("GET", topic_url) if refusal is None else None
            findings.append(_topic_finding(self.name, topic_url, refusal, topic))
        return findings

    def close(self) -> None:
        """Close the connections; forget token, credentials and signer."""
        self._client.close()
        self._token_client.close()
        self._identity.forget()
        self._token = ""

    def _publish(self, body: Body) -> tuple[Outcome, int]:
        """Return the outcome, and the status of the answer (0: there was none)."""
        refusal = self._authenticate()
        if refusal is not None:
            return refusal, 0
        reply = self._asked("POST", self._publish_url, body)
        if isinstance(reply, Failure):
            return answers.of_failure(reply), 0
        return outcome_of_reply(reply, self._identity.clock()), reply.status

    def _asked(self, method: str, url: str, content: bytes | Body = b"") -> Reply | Failure:
        headers = {"Content-Type": "application/json", "x-api-key": self._token}
        return self._client.request(method, url, content=content, headers=headers, secrets=(self._token,))

    def _authenticate(self) -> Outcome | None:
        """Get a token unless there is one. An outcome is returned if nothing was sent."""
        if self._token:
            return None
        self._identity.required()
        reply = self._token_client.request("GET", self._token_url)
        if isinstance(reply, Failure):
            return answers.of_failure(msgspec.structs.replace(reply, message=f"token: {reply.message}", sent=False))
        if reply.status in {400, 401, 403, 404}:
            return Unauthorised(f"no token for our certificate: {answers.describe(reply)}")
        if reply.status != 200:
            outcome = answers.of_status(reply, self._identity.clock())
            return Transient(answers.describe(reply)) if isinstance(outcome, Refused | Oversized | Unknown) else outcome
        try:
            token = msgspec.json.decode(reply.body, type=_TokenReply).token
        except (msgspec.MsgspecError, UnicodeDecodeError):
            token = ""
        if not _TOKEN.fullmatch(token):
            return Transient(f"the answer has no token: {answers.describe(reply)}. Check `auth_url`")
        self._token = token
        return None


class Body:
    """The JSON of one publish call, made while it is sent: it is a third longer than its message and never in memory as
    a whole.

    Neither is the message, which is given in parts. The batch id is cut to the length that every reader of the topic
    accepts.
    """

    def __init__(self, batch_id: str, signed: Sequence[bytes]) -> None:
        self._identity = _NOT_IN_ID.sub("-", batch_id)[:_MOST_ID_CHARACTERS].encode()
        self._signed = signed

    def __len__(self) -> int:
        frame = len(_BODY_START) + len(self._identity) + len(_BODY_MIDDLE) + len(_BODY_END)
        return frame + 4 * -(-sum(map(len, self._signed)) // 3)

    def __iter__(self) -> Iterator[bytes]:
        yield _BODY_START + self._identity + _BODY_MIDDLE
        left = b""
        for part in self._signed:
            for start in range(0, len(part), _PIECE_BYTES):
                piece = left + part[start : start + _PIECE_BYTES]
                whole = len(piece) - len(piece) % 3
                left = piece[whole:]
                if whole:
                    yield binascii.b2a_base64(piece[:whole], newline=False)
        yield binascii.b2a_base64(left, newline=False) + _BODY_END


def body_size_bound(signed_bytes: int) -> int:
    """The maximum size of the JSON of a signed message with this many bytes."""
    frame = len(_BODY_START) + _MOST_ID_CHARACTERS + len(_BODY_MIDDLE) + len(_BODY_END)
    return frame + 4 * -(-signed_bytes // 3)


def outcome_of_reply(reply: Reply, now_s: float) -> Outcome:
    """Interpret the messaging service's answer to one published message."""
    if reply.status == 200:
        try:
            message_ids = msgspec.json.decode(reply.body, type=_PublishReply).message_ids
        except (msgspec.MsgspecError, UnicodeDecodeError):
            message_ids = []
        if len(message_ids) == 1 and message_ids[0].strip():
            return Accepted(receipt={"messageIds": without(message_ids[0], reply.secrets)})
    answer = answers.describe(reply)
    if reply.status == 200:
        return Unknown(f"the answer does not name one message: {answer}")
    if reply.status == 400 and not answers.refuses_certificate(reply):
        return Refused(answer, certain=True)
    if reply.status == 404:
        return Unauthorised(f"{answer}. Check url, project and topic of this target", misdirected=True)
    return answers.of_status(reply, now_s)


def _topic_finding(name: str, url: str, refusal: Outcome | None, topic: Reply | Failure | None) -> Finding:
    subject = f"{name}: topic"
    if isinstance(topic, Reply) and topic.status in {200, 403}:
        seen = "exists" if topic.status == 200 else "cannot be looked at with our token, as is usual for publishers"
        return Finding(subject, "green", f"{url} {seen}")
    if isinstance(topic, Reply):
        answer = answers.describe(topic)
        return Finding(subject, "red", f"{url}: {answer}", "Check url, project and topic of this target")
    if topic is not None:
        return Finding(subject, "red", f"{url}: {topic.message}", topic.hint)
    return Finding(subject, "red", getattr(refusal, "answer", "no token"))
