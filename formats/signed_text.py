"""What the text of a signed message must not hold, or its receiver (SSM) rejects the message or stops at it.

SSM decodes a message as ASCII, and takes it for an encrypted one if the media type of those occurs anywhere in it, in a
job's name for instance (facts on receivers, 3). So the XML formats write that text with a character reference, which a
parser reads as the same value; APEL's text formats, which have no escapes, write a hyphen for its slash
(`formats.apel.text`); and a record of an add-on's format that holds it is held alone.
"""

from __future__ import annotations

from typing import Final

from formats.rule_codes import RuleCode

ENCRYPTED_TYPES: Final = (b"application/pkcs7-mime", b"application/x-pkcs7-mime")
"""What SSM looks for; upper and lower case differ."""

_COMMON: Final = "pkcs7-mime"
_COMMON_BYTES: Final = _COMMON.encode()


def referenced(xml: str) -> str:
    """XML with the hyphen of that media type as a character reference, in texts and quoted attributes alike."""
    if xml.rfind(_COMMON) < 0:  # from the end costs a third of what `in` does
        return xml
    return xml.replace(_COMMON, "pkcs7&#45;mime")


def looks_encrypted(payload: bytes) -> bool:
    """Whether SSM would take a message with this in it for an encrypted one."""
    return payload.rfind(_COMMON_BYTES) >= 0 and any(media_type in payload for media_type in ENCRYPTED_TYPES)


def why_not_signable(payload: bytes) -> RuleCode | None:
    """Why the receiver would reject a signed message with this in it, or stop at it; None: it takes it.

    The code is one of `formats.rule_codes.UNSIGNABLE`.
    Line ends may be LF or CRLF.
    """
    if not payload.isascii():
        return RuleCode.SIGNED_NOT_ASCII
    if b"\r" in payload and b"\r" in payload.replace(b"\r\n", b""):
        return RuleCode.SIGNED_CARRIAGE_RETURN
    if b"\0" in payload:
        return RuleCode.SIGNED_NUL
    if looks_encrypted(payload):
        return RuleCode.SIGNED_ENCRYPTED_TYPE
    return None
