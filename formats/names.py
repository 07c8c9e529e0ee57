"""Distinguished names: slash form and RFC 2253, and the name of a user that a receiver gets.

A person has one spelling at a receiver, independent of the form in the source: every format with a user takes the name
from `dn_for`.

Slash form (`/DC=org/DC=example/CN=Ada`) is OpenSSL's one-line form, most significant part first; RFC 2253 (and its
successor RFC 4514) has the parts in reverse order, separated by commas, with escapes. A text that is neither is not
changed: it may be a token's subject or a local convention, and a guess would give the job to another user.

Virtual organisations: the parts of a VOMS attribute (FQAN), and the VO to which a run is accounted. In all formats this
is the VO from its source or the configuration, else that of its first VOMS attribute (`vo_of`). An FQAN begins with a
slash and has a group (`Fqan.group`); any other text is only the name of a VO, and is never sent as an FQAN. At the APEL
server the FQAN of a CAR overrides its VO (facts on formats, 2.1), so an FQAN is sent only if the server reads the same
VO from it: `counts_as`.

SGAS requires the parts without the leading slash (facts on formats, 1.3): `sgas_group`. Capabilities are deprecated and
ignored.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from formats.job import Job
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import compared
from formats.view import View

HASH_BYTES: Final = 16
"""Length of the keyed hash of a name, bytes; it is written as twice as many hexadecimal digits."""

_TYPE: Final = r"(?:[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+)"
_SLASH_START: Final = re.compile(rf"/(?={_TYPE}=)")
_RDN: Final = re.compile(rf"\s*({_TYPE})\s*=\s*(.*)", re.DOTALL)
_HEX_PAIR: Final = re.compile(rb"[0-9A-Fa-f]{2}")
_MARK: Final = re.compile(r'\\.?|[",;+]', re.DOTALL)
"""What matters in splitting a name: an escaped character, a quote, or a separator."""
_SPECIAL: Final = frozenset(',+"\\<>;=')
_CACHED_NAMES: Final = 65_536
_LONGEST_CACHED: Final = 1_024
"""The longest name that is cached; a longer one, which no service accepts, is converted each time."""


def dn_for(job: Job, view: View) -> str | None:
    """The user's name as this receiver sees it, in slash form if the source has a distinguished name.

    None if the job has none or the view withholds it. With `dn = "hash"` it is `/CN=` and a BLAKE2b hash of the slash
    form under the view's key: a person has the same value at a receiver in any spelling. Raises `CannotRenderError` if
    names are to be hashed and the view has no key: a hash without a key does not hide a name.
    """
    name = job.user_dn
    if not name or view.dn == "withhold":
        return None
    slash = to_slash(name)
    if view.dn == "send":
        return slash
    if not view.dn_key:
        raise CannotRenderError(RuleCode.NO_HASH_KEY, "user_dn")
    key = view.dn_key
    if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
        key = hashlib.blake2b(key).digest()
    raw = slash.encode("utf-8", "surrogatepass")
    return "/CN=" + hashlib.blake2b(raw, digest_size=HASH_BYTES, key=key).hexdigest()


def to_slash(dn: str) -> str:
    """The name in slash form; a name in slash form, or a text that is not a distinguished name, is returned
    unchanged."""
    if dn.startswith("/"):
        return dn
    return _to_slash(dn) if len(dn) <= _LONGEST_CACHED else _to_slash.__wrapped__(dn)


@lru_cache(maxsize=_CACHED_NAMES)
def _to_slash(dn: str) -> str:
    parts = _parse_rfc2253(dn)
    if parts is None:
        return dn
    return "".join(f"/{kind}={value}" for kind, value in reversed(parts))


def to_rfc2253(dn: str) -> str:
    """The name in RFC 2253 form; a text that is not in slash form is returned unchanged.

    A slash that is not followed by `type=` belongs to the value, so that `/CN=host/ce1.example.org` keeps its host.
    """
    return _to_rfc2253(dn) if len(dn) <= _LONGEST_CACHED else _to_rfc2253.__wrapped__(dn)


@lru_cache(maxsize=_CACHED_NAMES)
def _to_rfc2253(dn: str) -> str:
    parts = _parse_slash(dn)
    if parts is None:
        return dn
    return ",".join(f"{kind}={_escape(value)}" for kind, value in reversed(parts))


def _parse_slash(dn: str) -> list[tuple[str, str]] | None:
    before, *words = _SLASH_START.split(dn)
    if before or not words:
        return None
    parts = []
    for word in words:
        kind, _, value = word.partition("=")
        parts.append((kind, value))
    return parts


def _parse_rfc2253(dn: str) -> list[tuple[str, str]] | None:
    """Attribute types and values in the order written; a multi-valued part gives one pair for each of its values."""
    words = _split_unescaped(dn)
    if words is None:
        return None
    parts: list[tuple[str, str]] = []
    for together in words:
        # the whole list is reversed later, so the values of one part are added in reverse order
        for word in reversed(together):
            match = _RDN.fullmatch(word)
            if match is None:
                return None
            value = _unescape(match[2])
            if value is None:
                return None
            parts.append((match[1], value))
    return parts


def _split_unescaped(dn: str) -> list[list[str]] | None:
    """Split at commas (or semicolons) and, inside, at plus signs that are neither escaped nor quoted."""
    words: list[list[str]] = [[]]
    quoted = False
    begin = 0
    for mark in _MARK.finditer(dn):
        char = mark[0]
        if char == '"':
            quoted = not quoted
        elif not quoted and char[0] != "\\":
            words[-1].append(dn[begin : mark.start()])
            begin = mark.end()
            if char != "+":
                words.append([])
    words[-1].append(dn[begin:])
    return None if quoted else words


def _unescape(text: str) -> str | None:
    """The value of an RFC 2253 attribute; None if an escape is broken or its bytes are not UTF-8."""
    text = _strip_unescaped(text)
    if len(text) >= 2 and text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    raw = text.encode("utf-8", "surrogatepass")
    value = bytearray()
    position = 0
    while position < len(raw):
        if raw[position : position + 1] != b"\\":
            value.append(raw[position])
            position += 1
        elif _HEX_PAIR.fullmatch(raw, position + 1, position + 3):
            value.append(int(raw[position + 1 : position + 3], 16))
            position += 3
        elif position + 1 < len(raw):
            value.append(raw[position + 1])
            position += 2
        else:
            return None
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _strip_unescaped(text: str) -> str:
    stripped = text.rstrip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    if backslashes % 2 and stripped != text:
        stripped += " "
    return stripped


def _escape(value: str) -> str:
    escaped = []
    last = len(value) - 1
    for position, char in enumerate(value):
        if char in _SPECIAL or (char == "#" and position == 0) or (char == " " and position in (0, last)):
            escaped.append("\\" + char)
        elif ord(char) < 0x20 or ord(char) == 0x7F or (char.isspace() and char != " "):
            escaped.append("".join(f"\\{byte:02X}" for byte in char.encode("utf-8", "surrogatepass")))
        else:
            escaped.append(char)
    return "".join(escaped)


class Fqan(msgspec.Struct, frozen=True):
    """The parts of a VOMS attribute.

    `group` has its leading slash (`/atlas/no`); `role` is only the name (`production`). `group` is None if the text is
    not an FQAN but the name of a VO; `role` is None for `Role=NULL` and without a role.
    """

    vo: str
    group: str | None = None
    role: str | None = None


@lru_cache(maxsize=4096)
def parse_fqan(fqan: str) -> Fqan:
    """The parts of `/atlas/no/Role=production/Capability=NULL`. Any text can be parsed (`vo` may be empty)."""
    text = fqan.split(";", 1)[0].strip()
    if not text.startswith("/"):
        return Fqan(text)
    path: list[str] = []
    role: str | None = None
    for part in text.split("/"):
        if part.startswith("Role="):
            role = part.removeprefix("Role=")
            break
        if part.startswith("Capability="):
            break
        if part:
            path.append(part)
    if not path:
        return Fqan("", None, _role(role))
    return Fqan(path[0], "/" + "/".join(path), _role(role))


_GROUP: Final = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+", re.ASCII)


def is_token_group(text: str) -> bool:
    """Whether a text is a group of a token (`/atlas/production`): it names no role, and APEL reads it as it is."""
    return _GROUP.fullmatch(text) is not None


def token_groups_of_vo(groups: Iterable[str], vo: str) -> tuple[str, ...]:
    """The groups of a token that are within `/VO`, by whole elements of their paths, without those above another one.

    In alphabetical order: that of a token is no rank. Several: which of them the job is for, only its user knows.
    """
    within = {group for group in groups if is_token_group(group) and f"{group}/".startswith(f"/{vo}/")}
    return tuple(sorted(group for group in within if not any(each.startswith(f"{group}/") for each in within)))


def _role(role: str | None) -> str | None:
    return role if role and role.upper() != "NULL" else None


def distinct_fqans(fqans: Iterable[str]) -> tuple[Fqan, ...]:
    """The parsed VOMS attributes, each group and role once, in the order given (ARC lists the primary one twice)."""
    return tuple(dict.fromkeys(parse_fqan(fqan) for fqan in fqans))


def vo_of(job: Job) -> str | None:
    """The VO to which a run is accounted: the source's, else that of its first VOMS attribute."""
    if job.vo:
        return job.vo
    if job.fqans:
        return parse_fqan(job.fqans[0]).vo or None
    return None


def vo_read_by_apel(fqan: str) -> str:
    """The VO that the APEL server takes from an FQAN: its function `parse_fqan`, release 2.5.0.

    The part before the first `;`; of that the part between the first two slashes, or all of it without a leading slash.
    """
    first = fqan.split(";", 1)[0]
    return first.split("/", 2)[1] if first.startswith("/") else first


def apel_fqan_parts(fqan: str) -> tuple[str, str, str]:
    """VO, VOGroup, and VORole that the APEL server takes from an FQAN: its function `parse_fqan`, release 2.5.0.

    Empty for a missing one.
    """
    first = fqan.split(";", 1)[0]
    if not first.startswith("/"):
        return first, "", ""
    group, role = "", ""
    for part in first.split("/"):
        if part.lower().startswith("role="):
            role = part
            break
        group += f"/{part}" if part else ""
    return vo_read_by_apel(fqan), group, role


def counts_as(fqan: str, vo: str | None) -> bool:
    """Whether a text is an FQAN with which the APEL server counts a record under this VO.

    Its database ignores case (facts on formats, 4.8).
    """
    if vo is None or parse_fqan(fqan).group is None:
        return False
    return compared(vo_read_by_apel(fqan)) == compared(vo.strip())


def sgas_group(fqan: Fqan) -> str | None:
    """The group as SGAS documents it: `atlas/no`, without the leading slash."""
    return fqan.group.lstrip("/") if fqan.group else None
