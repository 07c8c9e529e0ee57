"""What is kept of an answer: never the token, however the service spells it."""

from __future__ import annotations

import html
from urllib.parse import quote

import pytest

from publisher.security.http import Reply
from publisher.targets import ams, answers, base

TOKEN = "test+Token/09=="
SPELLED = {
    "as it is": TOKEN,
    "a letter as HTML": TOKEN.replace("t", "&#116;"),
    "without semicolons": TOKEN.replace("T", "&#84"),
    "hexadecimal, with zeros": "".join(f"&#x{ord(letter):04X};" for letter in TOKEN),
    "by names": TOKEN.replace("+", "&plus;").replace("/", "&sol;").replace("=", "&equals;"),
    "escaped twice": html.escape(TOKEN.replace("t", "&#116;")),
    "cut by mark-up": TOKEN.replace("n", "<b>n</b>"),
    "cut by a control character": TOKEN.replace("n", "\x00n"),
    "cut by a line end": TOKEN.replace("n", "\r\n n"),
    "as in JSON": "".join(f"\\u{ord(letter):04x}" for letter in TOKEN),
    "as in a URL": quote(TOKEN, safe="").replace("t", "%74"),
}


@pytest.mark.parametrize("page", [False, True], ids=["text", "HTML"])
@pytest.mark.parametrize("spelled", SPELLED.values(), ids=SPELLED)
def test_a_token_is_not_in_what_is_kept(spelled: str, page: bool) -> None:
    body = f"<html><p>bad key {spelled} given</p></html>" if page else f'bad key "{spelled}" given'
    said = answers.describe(Reply(403, {}, body.encode(), (TOKEN,)))
    if not page and "<b>" in spelled:  # there mark-up is text
        assert TOKEN not in said
        return
    assert "[token]" in said
    assert said.startswith("HTTP 403: bad key")
    assert "09" not in said


def test_a_token_is_not_in_where_a_service_redirects_to() -> None:
    said = answers.describe(Reply(302, {"location": f"https://elsewhere.example/?key={quote(TOKEN)}"}, b"", (TOKEN,)))
    assert "key=[token]" in said


def test_a_token_is_not_in_a_receipt() -> None:
    outcome = ams.outcome_of_reply(Reply(200, {}, b'{"messageIds": ["' + TOKEN.encode() + b'"]}', (TOKEN,)), 0.0)
    assert outcome == base.Accepted(receipt={"messageIds": "[token]"})


def test_a_token_that_is_cut_at_the_end_of_what_is_read_is_not_kept() -> None:
    for rest in range(len(TOKEN)):
        body = "<p>" + " " * (16384 - 3 - rest) + TOKEN
        said = answers.describe(Reply(500, {}, body.encode(), (TOKEN,)))
        assert said == "HTTP 500"
