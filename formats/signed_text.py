"""Text that a signed message must not contain, because its receiver (SSM) would reject the message or stop at it.

SSM decodes a message as ASCII, and treats it as encrypted if the media type of encrypted messages occurs anywhere in
it, for instance in the name of a job (facts/receivers.md 3). So the XML formats write that text with a character
reference, which a parser reads as the same value; APEL's text formats, which have no escapes, write a hyphen for its
slash (`formats.apel.text`); and a record of an add-on's format that contains it is held.
"""

from __future__ import annotations

from typing import Final

from formats.rule_codes import RuleCode

ENCRYPTED_TYPES: Final = (b"application/pkcs7-mime", b"application/x-pkcs7-mime")
"""The text that SSM searches for, case-sensitively."""

_COMMON: Final = "pkcs7-mime"
_COMMON_BYTES: Final = _COMMON.encode()


def referenced(xml: str) -> str:
    """XML with the hyphen of that media type as a character reference, in texts and quoted attributes alike."""
    if xml.rfind(_COMMON) < 0:  # a search from the end takes a third of the time of `in`
        return xml
    return xml.replace(_COMMON, "pkcs7&#45;mime")


def looks_encrypted(payload: bytes) -> bool:
    """Whether SSM would treat a message with this in it as encrypted."""
    return payload.rfind(_COMMON_BYTES) >= 0 and any(media_type in payload for media_type in ENCRYPTED_TYPES)


def why_not_signable(payload: bytes) -> RuleCode | None:
    """Return why the receiver would reject a signed message with this in it, or stop at it; None: it accepts it.

    The code is one of `formats.rule_codes.UNSIGNABLE`. Line ends may be LF or CRLF.
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
