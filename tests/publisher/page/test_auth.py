"""The token file, and the sessions of who came in by it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from publisher.errors import ConfigError, CredentialError, UsageError
from publisher.page.auth import STATUS, People, Person, Sessions
from publisher.page.query import fields, parse
from publisher.report.view_kind import EFFICIENCY, VIEW_KINDS, Role
from tests.publisher.page.conftest import TOKENS, token_file

TOKEN = "a-token-of-many-letters"
DIGEST = hashlib.sha256(TOKEN.encode()).hexdigest()


def people(folder: Path, text: str) -> People:
    file = folder / "tokens.toml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return People(file)


def user(group: str = "g", rest: str = "") -> str:
    return f'[users.alice]\ngroup = "{group}"\nsha256 = "{DIGEST}"\n{rest}'


def test_each_has_what_the_role_of_the_group_has(tmp_path: Path) -> None:
    known = People(token_file(tmp_path))
    found = {name: known.by_token(token) for name, token in TOKENS.items()}
    alice, root, boss = (found[name][1] for name in ("alice", "root", "boss"))  # type: ignore[index]
    assert (alice.role, alice.group, alice.owner) == ("user", "chemistry", "alice")
    assert alice.may("job")
    assert not any(alice.may(view) for view in ("occupation", "scarce", "load", STATUS))
    assert root.views == {*VIEW_KINDS, STATUS} - {"late", "sql"}
    assert (root.owner, boss.owner) == (None, None)
    assert boss.may("scarce")
    assert not boss.may("job")
    assert known.by_token("something else") is None
    assert known.by_token("") is None


def test_a_users_name_is_not_a_pattern(tmp_path: Path) -> None:
    known = people(tmp_path, '[groups.g]\nrole = "user"\n' + user(rest='owner = "*"\n'))
    assert known.by_token(TOKEN)[1].owner == "[*]"  # type: ignore[index]


def test_a_group_may_have_fewer_views(tmp_path: Path) -> None:
    known = people(tmp_path, '[groups.g]\nrole = "admin"\nviews = ["totals"]\n' + user())
    assert known.by_token(TOKEN)[1].views == {"totals"}  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[groups.g]\nrole = "king"\n' + user(), "king"),
        ('[groups.g]\nrole = "user"\n' + user("h"), "users.alice.group: 'h' is not a group; the groups are: g"),
        ('[groups.g]\nrole = "user"\nviews = ["scarce"]\n' + user(), "scarce: the role user has only the views"),
        ('[groups.g]\nrole = "user"\ncolour = 1\n' + user(), "colour"),
        ('[groups.g]\nrole = "user"\n[users.alice]\ngroup = "g"\nsha256 = "abc"\n', "sha256"),
        ('[groups.g]\nrole = "user"\n' + user() + user().replace("alice", "bob"), "the same token"),
        ("[groups", "is not TOML"),
        ("users = 3", "cannot be used"),
    ],
)
def test_an_invalid_file_gives_no_access(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("[", "\\[")) as caught:
        people(tmp_path, text)
    assert str(tmp_path / "tokens.toml") in str(caught.value)
    assert DIGEST not in str(caught.value)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = token_file(tmp_path)
    file.chmod(0o640)
    with pytest.raises(CredentialError, match="can be read by other users"):
        People(file)


def test_a_person_who_is_removed_from_the_file_is_logged_out(tmp_path: Path) -> None:
    file = token_file(tmp_path)
    known = People(file)
    digest = known.by_token(TOKENS["alice"])[0]  # type: ignore[index]
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(digest, "0" * 64), encoding="utf-8")
    os.utime(file, ns=(1, 1))
    assert known.by_digest(digest) is None
    assert known.by_token(TOKENS["root"]) is not None
    file.unlink()
    with pytest.raises(CredentialError):
        known.by_token(TOKENS["root"])


def test_sessions_end() -> None:
    now = [1000]
    kept = Sessions(60, lambda: now[0])
    first, second = kept.begin("digest"), kept.begin("digest")
    assert first != second
    assert kept.token_digest(first) == "digest"
    assert kept.token_digest("digest") is None
    kept.end(first)
    assert kept.token_digest(first) is None
    now[0] += 60
    assert kept.token_digest(second) is None


def test_sessions_do_not_grow_for_ever() -> None:
    kept = Sessions(60, lambda: 0, most=3)
    cookies = [kept.begin(str(number)) for number in range(5)]
    assert [kept.token_digest(cookie) for cookie in cookies] == [None, None, "2", "3", "4"]


@pytest.mark.parametrize(("role", "may"), [("user", True), ("manager", False), ("admin", True)])
def test_managers_see_no_single_jobs_in_rows_either(role: Role, *, may: bool) -> None:
    person = Person("ada", "staff", role, frozenset({"efficiency"}), None)
    offered = [name for field in fields(EFFICIENCY, {}, 0, person) if field.name == "by" for name, _ in field.choices]
    assert ("job" in offered) == may
    if may:
        assert parse(EFFICIENCY, {"by": "job"}, 0, (None, None), person).request.by == ("job",)
    else:
        with pytest.raises(UsageError, match="'job' is not a key of efficiency"):
            parse(EFFICIENCY, {"by": "job"}, 0, (None, None), person)


def test_a_session_of_less_than_a_second() -> None:
    now = [1000]
    kept = Sessions(0.5, lambda: now[0])
    assert kept.token_digest("unknown") is None
    cookie = kept.begin("digest")
    assert kept.token_digest(cookie) == "digest"
    now[0] += 1
    assert kept.token_digest(cookie) is None
