"""Distinguished names: both forms, and the policy of a receiver."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.job import Job
from formats.names import dn_for, to_rfc2253, to_slash
from formats.rule_codes import CannotRenderError
from formats.view import View

ADA = "/DC=org/DC=example/O=Grid/CN=Ada Lovelace"


def job(dn: str | None) -> Job:
    return Job(record_id="ur-1", system="arc", status="completed", user_dn=dn)


@pytest.mark.parametrize(
    ("slash", "rfc2253"),
    [
        (ADA, "CN=Ada Lovelace,O=Grid,DC=example,DC=org"),
        ("/O=Grid/CN=host/ce1.example.org", "CN=host/ce1.example.org,O=Grid"),
        ('/O=Uni, Dept. + Lab/CN=A "B" \\ C', 'CN=A \\"B\\" \\\\ C,O=Uni\\, Dept. \\+ Lab'),
        ("/CN=#1/OU= x ", "OU=\\ x\\ ,CN=\\#1"),
        ("/CN=line\nbreak", "CN=line\\0Abreak"),
        ("/CN=Zoë", "CN=Zoë"),
        ("/1.2.840.113549.1.9.1=a@b/CN=x=y", "CN=x\\=y,1.2.840.113549.1.9.1=a@b"),
    ],
)
def test_both_forms(slash: str, rfc2253: str) -> None:
    assert to_rfc2253(slash) == rfc2253
    assert to_slash(rfc2253) == slash


@pytest.mark.parametrize(
    ("rfc2253", "slash"),
    [
        ("CN=Ada, O=Grid , DC=org", "/DC=org/O=Grid/CN=Ada"),
        ("CN=Ada;O=Grid", "/O=Grid/CN=Ada"),
        ('CN="Ada, Countess",O=Grid', "/O=Grid/CN=Ada, Countess"),
        ("CN=Zo\\C3\\AB,O=Grid", "/O=Grid/CN=Zoë"),
        ("CN=a+UID=b,O=Grid", "/O=Grid/CN=a/UID=b"),
    ],
)
def test_rfc2253_in_its_other_spellings(rfc2253: str, slash: str) -> None:
    assert to_slash(rfc2253) == slash


@pytest.mark.parametrize("text", ["", "ada", "CN=a,b", "CN=a\\", 'CN="a', "CN=\\FF", "https://idp.example.org/sub"])
def test_what_is_not_a_dn_is_left_alone(text: str) -> None:
    assert to_slash(text) == text
    assert to_rfc2253(text) == text


@pytest.mark.parametrize("part", ["a", "\\,", "\\C3\\AB", '"a,b"', "=", " ", ",CN=a", "+"])
def test_long_names_take_time_in_proportion_to_their_length(part: str) -> None:
    def seconds_for(characters: int) -> float:
        value = part * (characters // len(part))
        begun = time.process_time()
        to_rfc2253(to_slash(f"CN=x{value}y,O=Grid"))
        to_slash(value)
        return time.process_time() - begun

    seconds_for(1_000)
    assert seconds_for(400_000) < 80 * max(seconds_for(25_000), 0.00125)  # 16 times the length; its square is 256


@pytest.mark.parametrize("part", ["a", "\\,", "\\C3\\AB", "="])
def test_a_long_name_is_converted_as_a_short_one(part: str) -> None:
    long, short = (to_slash(f"CN=x{part * times}y,O=Grid") for times in (100_000, 2))
    begin, _, end = short.partition("y")
    assert long.startswith(begin)
    assert long.endswith(f"y{end}")
    assert to_slash(to_rfc2253(long)) == long


kinds = st.sampled_from(["CN", "O", "OU", "DC", "UID", "emailAddress", "1.2.3"])
values = st.text(st.characters(exclude_characters="/"), max_size=12)


@given(st.lists(st.tuples(kinds, values), min_size=1, max_size=6))
def test_any_slash_form_survives_the_way_there_and_back(parts: list[tuple[str, str]]) -> None:
    slash = "".join(f"/{kind}={value}" for kind, value in parts)
    assert to_slash(to_rfc2253(slash)) == slash


@given(st.text(st.characters(codec=None), max_size=60))
def test_no_text_makes_a_problem(text: str) -> None:
    assert isinstance(to_slash(text), str)
    assert isinstance(to_rfc2253(text), str)
    hashed = dn_for(job(text), View(site="S", dn="hash", dn_key=b"k"))
    assert hashed is None or (hashed.isascii() and hashed != text)


def test_the_policy_decides_what_is_given() -> None:
    rfc2253 = "CN=Ada Lovelace,O=Grid,DC=example,DC=org"
    assert dn_for(job(rfc2253), View(site="S")) == ADA
    assert dn_for(job(ADA), View(site="S", dn="withhold")) is None
    assert dn_for(job(None), View(site="S")) is None


def test_a_hash_depends_on_the_person_and_the_key_alone() -> None:
    one, other = View(site="S", dn="hash", dn_key=b"one"), View(site="S", dn="hash", dn_key=b"o" * 100)
    hashed = dn_for(job(ADA), one)
    assert hashed is not None
    assert hashed.startswith("/CN=")
    assert "Ada" not in hashed
    assert len(hashed) == 4 + 32
    assert dn_for(job("CN=Ada Lovelace,O=Grid,DC=example,DC=org"), one) == hashed
    assert dn_for(job(ADA), other) != hashed
    assert dn_for(job(ADA + "2"), one) != hashed


def test_a_hash_without_a_key_is_refused() -> None:
    with pytest.raises(CannotRenderError, match="key"):
        dn_for(job(ADA), View(site="S", dn="hash"))
