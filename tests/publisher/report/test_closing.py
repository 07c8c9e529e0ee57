"""Closed months: numbers, corrections, successors, pseudonyms; what was issued and what is open is what is true."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import delete, text, update

from formats.calendar import Month, month_bounds
from formats.job import Host
from publisher.config.energy import Energy
from publisher.config.reports import Charges, Node
from publisher.errors import StoreCorruptError, StoreRestoredError, UsageError
from publisher.report.request import ReportRequest
from publisher.report.statements.closed import PriceList
from publisher.report.statements.files import document
from publisher.report.statements.statement import LostRuns
from publisher.store import closed_months
from publisher.store.schema import closed_texts, closings
from publisher.testing.memory import ListSource
from tests.extent import short_or_whole
from tests.publisher.report.closing_site import (
    PRICES,
    Reckoning,
    changed,
    charged_now,
    charges,
    closing_site,
    come,
    job,
    killed_while,
    person,
    require_conserved,
    stated,
)
from tests.publisher.site import Site

pytestmark = pytest.mark.either_store

SEPTEMBER, OCTOBER = Month(2026, 9), Month(2026, 10)
IN_SEPTEMBER, IN_OCTOBER = month_bounds(SEPTEMBER)[0] + 86_400, month_bounds(OCTOBER)[0] + 86_400
FIRST = (
    job(1, "ada", IN_SEPTEMBER),
    job(2, "ada", IN_SEPTEMBER + 9, 1800, queue="short"),
    job(3, "bob", IN_SEPTEMBER + 20, 7200),
    job(4, "bob", IN_OCTOBER),
)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """September is closed."""
    site = closing_site(tmp_path, *FIRST)
    site.publisher.close_month(SEPTEMBER)
    return site


@pytest.fixture
def reckoning() -> Reckoning:
    reckoning = Reckoning()
    reckoning.take(*FIRST)
    reckoning.prices[SEPTEMBER] = PRICES
    return reckoning


def test_statements_get_numbers(site: Site, reckoning: Reckoning) -> None:
    (month,) = site.publisher.closed_months()
    assert [(one.statement.number, one.statement.payer, one.statement.total) for one in month.statements] == [
        ("2026-00001", "ada", Decimal("0.59")), ("2026-00002", "bob", Decimal("0.44")),
    ]  # fmt: skip
    require_conserved(site, reckoning)
    assert charged_now(site, SEPTEMBER) == Decimal("1.03")
    with pytest.raises(UsageError, match="is closed already"):
        site.publisher.close_month(SEPTEMBER)
    assert [entry.action for entry in site.publisher.audit()] == ["close month"]


def test_what_comes_later_is_a_correction(site: Site, reckoning: Reckoning) -> None:
    later = (
        job(5, "eve", IN_SEPTEMBER + 99),  # late, of somebody who has no statement
        job(6, "ada", IN_SEPTEMBER + 99),
        changed(FIRST[1], wall_ms=3_600_000, start=IN_SEPTEMBER + 9 - 3600),
        changed(FIRST[2], start=IN_OCTOBER - 7200, end=IN_OCTOBER, submit=IN_OCTOBER - 8000),  # left the month
    )
    come(site, *later)
    reckoning.take(*later)
    require_conserved(site, reckoning)
    (month,) = site.publisher.closed_months()
    shown = {
        payer: sorted((one.name, str(one.amount), one.reason) for one in some)
        for payer, some in month.changes.corrections.items()
    }
    assert shown == {
        "ada": [
            ("correction of 2026-09: cores (main)", "0.22", "1 job late"),
            ("correction of 2026-09: cores (short)", "0.37", "1 job changed"),
        ],
        "bob": [("correction of 2026-09: cores (main)", "-0.44", "1 job vanished")],
        "eve": [("correction of 2026-09: cores (main)", "0.22", "1 job late")],
    }  # fmt: skip
    site.publisher.close_month(OCTOBER)
    reckoning.prices[OCTOBER] = PRICES
    require_conserved(site, reckoning)
    september, october = site.publisher.closed_months()
    assert not september.changes.corrections
    assert [(one.statement.payer, str(one.statement.total)) for one in october.statements] == [
        ("ada", "0.59"), ("bob", "0.22"), ("eve", "0.22"),
    ]  # fmt: skip
    begin, end = month_bounds(OCTOBER)
    made, _ = site.publisher.statements(ReportRequest(start=begin, stop=end), site.folder / "out", ("text",))
    text = document(made, made.all[1], "text").decode()
    assert "2026-00004" in text
    assert "correction of 2026-09" in text
    assert "1 job vanished" in text


def test_a_successor_names_what_it_cancels(site: Site, reckoning: Reckoning) -> None:
    late = job(5, "ada", IN_SEPTEMBER + 99)
    come(site, late)
    reckoning.take(late)
    site.publisher.close_month(OCTOBER)
    reckoning.prices[OCTOBER] = PRICES
    dearer = {"short": "1", "main": "1"}
    site.table["charges"] = charges(dearer)
    site.reopen()
    require_conserved(site, reckoning)  # a new price list changes no closed month
    issued = site.publisher.cancel_month(SEPTEMBER, "wrong prices")
    reckoning.prices[SEPTEMBER] = dearer
    require_conserved(site, reckoning)
    assert {one.statement.payer: one.statement.cancels for one in issued} == {"ada": "2026-00001", "bob": "2026-00002"}
    ada = next(one.statement for one in issued if one.statement.payer == "ada")
    assert [(each.included_in, str(each.amount)) for each in ada.corrections] == [("2026-00003", "-0.22")]
    begin, end = month_bounds(SEPTEMBER)
    made, _ = site.publisher.statements(ReportRequest(start=begin, stop=end), site.folder / "out", ("text",))
    assert "statement 2026-00001, which is cancelled" in document(made, made.all[0], "text").decode()
    entries = [(entry.action, entry.subject) for entry in site.publisher.audit()]
    assert ("cancel statement", "2026-00001") in entries
    # The cancelled October carries its corrections on.
    site.publisher.cancel_month(OCTOBER, "wrong prices too")
    reckoning.prices[OCTOBER] = dearer
    require_conserved(site, reckoning)
    site.publisher.cancel_month(SEPTEMBER, "once more")
    require_conserved(site, reckoning)


def test_a_forgotten_person_keeps_the_amounts(site: Site, reckoning: Reckoning) -> None:
    before = [one.changes.closing.digest for one in site.publisher.closed_months()]
    site.publisher.maintenance.forget(person("ada"), "/CN=somebody")
    reckoning.names["ada"] = "/CN=somebody"
    require_conserved(site, reckoning)
    (month,) = site.publisher.closed_months()
    assert [one.statement.payer for one in month.statements] == ["/CN=somebody", "bob"]
    assert [month.changes.closing.digest] == before
    assert not month.changes.corrections
    assert all("ada" not in str(row) for row in site.rows("SELECT content FROM closed_texts"))
    with pytest.raises(UsageError, match="no jobs"):
        site.publisher.maintenance.forget(person("ada"))


def test_purged_months_and_deleted_columns_do_not_matter(site: Site, reckoning: Reckoning) -> None:
    site.publisher.maintenance.purge(OCTOBER)
    require_conserved(site, reckoning)
    again = changed(FIRST[0], wall_ms=7_200_000, start=IN_SEPTEMBER - 7200)
    come(site, again)
    reckoning.take(again)
    require_conserved(site, reckoning)
    moved = changed(FIRST[2], start=IN_OCTOBER, end=IN_OCTOBER + 7200, submit=IN_OCTOBER)
    come(site, moved)
    reckoning.take(moved)
    require_conserved(site, reckoning)
    with pytest.raises(UsageError, match="purged"):
        site.publisher.cancel_month(SEPTEMBER, "wrong")


def test_only_complete_months_are_closed(tmp_path: Path) -> None:
    source = ListSource("ce1", complete_since=IN_SEPTEMBER)
    source.add(*FIRST)
    site = Site(tmp_path, [source], [])
    site.table["charges"] = charges()
    with pytest.raises(UsageError, match="ce1"):
        site.publisher.close_month(OCTOBER)
    site.collect()
    with pytest.raises(UsageError, match="ce1"):
        site.publisher.close_month(SEPTEMBER)
    with pytest.raises(UsageError, match="it ends at 2026-12-01"):
        site.publisher.close_month(Month(2026, 11))
    site.publisher.close_month(OCTOBER)
    with pytest.raises(UsageError, match="is not closed"):
        site.publisher.cancel_month(SEPTEMBER, "no")


def test_another_currency_needs_successors(site: Site, reckoning: Reckoning) -> None:
    """A currency without decimals: amounts are whole, and are never added to those of another currency."""
    come(site, job(5, "ada", IN_SEPTEMBER + 99))
    site.table["charges"] = charges({"short": "37", "main": "11"}, currency="JPY", decimals=0)
    site.reopen()
    with pytest.raises(UsageError, match=r"in EUR 2 user, and the configuration has JPY 0 user"):
        site.publisher.close_month(OCTOBER)
    issued = site.publisher.cancel_month(SEPTEMBER, "yen from now on")
    assert [str(one.statement.total) for one in issued] == ["81", "44"]
    assert [str(one.statement.total) for one in site.publisher.close_month(OCTOBER)] == ["22"]


def test_two_hosts_give_no_number_twice(tmp_path: Path) -> None:
    site = closing_site(tmp_path, *FIRST)
    site.publisher.close_month(Month(2026, 8))
    others = [site.another_publisher() for _ in range(2)]
    failed: list[str] = []

    def close(place: int) -> None:
        try:
            others[place].close_month((SEPTEMBER, OCTOBER)[place])
        except UsageError as error:  # the other one has the lock
            failed.append(error.message)

    threads = [threading.Thread(target=close, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.close()
    closed = {one.changes.month for one in site.publisher.closed_months()}
    for month in {SEPTEMBER, OCTOBER} - closed:
        site.publisher.close_month(month)
    numbers = [one.number for month in site.publisher.closed_months() for one in month.statements]
    assert sorted(numbers) == [1, 2, 3]
    assert failed in ([], ["another run is collecting"])


def test_a_killed_closing_has_left_all_or_nothing(tmp_path: Path, reckoning: Reckoning) -> None:
    site = closing_site(tmp_path, *FIRST)
    reckoning.prices.clear()
    reckoning.take(late := job(5, "ada", IN_SEPTEMBER + 99))
    site.publisher.close_month(SEPTEMBER)
    reckoning.prices[SEPTEMBER] = PRICES
    come(site, late)
    stride = short_or_whole(14, 3)
    step, closed = stride, False
    while not closed and killed_while(site, step, lambda: site.publisher.close_month(OCTOBER)):
        closed = OCTOBER in {one.changes.month for one in site.publisher.closed_months()}
        reckoning.prices |= {OCTOBER: PRICES} if closed else {}
        require_conserved(site, reckoning)
        step += stride
    reckoning.prices[OCTOBER] = PRICES
    require_conserved(site, reckoning)
    assert step > 24


def test_a_restored_store_gives_no_number_again(site: Site) -> None:
    site.snapshot(site.folder / "before")
    (site.folder / "before" / "store.db.sent").unlink(missing_ok=True)
    mark = site.folder / "store.db.sent"
    site.publisher.close_month(OCTOBER)
    kept = mark.read_bytes()
    site.restore(site.folder / "before")
    mark.write_bytes(kept)
    with pytest.raises(StoreRestoredError):
        site.publisher.close_month(OCTOBER)


@pytest.mark.parametrize(
    "flipped",
    [
        "UPDATE closed_runs SET usage = '1'",
        "UPDATE closings SET settings = replace(settings, '0.37', '0.36')",
        "UPDATE closings SET month = month + 1 WHERE id = 2",
        "UPDATE closings SET closed_at = closed_at + 1 WHERE id = 2",
        "UPDATE closings SET successor = NULL",
        "UPDATE closings SET successor = 9 WHERE successor IS NULL",
        "UPDATE closed_texts SET content = 'bod' WHERE content = 'bob'",
        "DELETE FROM closed_texts WHERE content = 'bob'",
        "UPDATE closed_statements SET body = replace(body, '1', '2')",
    ],
)
def test_damage_is_found_where_corrections_are_computed(site: Site, flipped: str) -> None:
    site.publisher.cancel_month(SEPTEMBER, "once more")
    assert site.publisher.closed_months()
    with site.publisher.store.write() as connection:
        assert connection.execute(text(flipped)).rowcount
    (finding,) = [each for each in site.publisher.maintenance.check() if each.subject == "closed months"]
    assert finding.level == "red"
    for computed in (
        site.publisher.closed_months,
        lambda: site.publisher.close_month(OCTOBER),
        lambda: site.publisher.cancel_month(SEPTEMBER, "again"),
    ):
        with pytest.raises(StoreCorruptError, match="the store is damaged"):
            computed()


@pytest.mark.parametrize("is_old", [False, True])
def test_each_text_that_is_missing_is_noticed(tmp_path: Path, is_old: bool) -> None:
    factors = [{"factor": "0.5", "user": ["ada", "eve"]}]
    adjustments = [{"month": "2026-09", "payer": "carl", "amount": "1.00", "reason": "an outage"}]
    site = closing_site(tmp_path, *FIRST, group_factors=factors, adjustments=adjustments)
    site.publisher.close_month(SEPTEMBER)
    names = {content for (content,) in site.rows("SELECT content FROM closed_texts")}
    assert {"ada", "eve", "bob", "carl", "an outage"} <= names
    if is_old:
        make_old(site)
        names -= {"eve"}  # of the price list only, which has the name itself
    unnoticed = set()
    for name in sorted(names):
        with site.publisher.store.write() as connection:
            connection.execute(delete(closed_texts).where(closed_texts.c.content == name))
            if not any("is missing" in problem for problem in closed_months.wrong(connection)):
                unnoticed.add(name)
            connection.rollback()
    assert unnoticed == set()


@pytest.mark.parametrize("is_old", [False, True])
def test_a_forgotten_name_is_in_no_price_list(tmp_path: Path, is_old: bool) -> None:
    name = 'a"d\\a'
    factor = {"factor": "0.5", "user": [name, "bob"]}
    adjustment = {"month": "2026-09", "payer": name, "amount": "1.00", "reason": f"for {name}"}
    mine = job(1, name, IN_SEPTEMBER, user_dn=person("ada"))
    site = closing_site(tmp_path, mine, group_factors=[factor], adjustments=[adjustment])
    site.publisher.close_month(SEPTEMBER)
    if is_old:
        make_old(site)
    (before,) = site.publisher.closed_months()
    assert before.changes.price_list.charges.group_factors[0].user == (name, "bob")
    site.publisher.maintenance.forget(person("ada"), "somebody")
    (month,) = site.publisher.closed_months()
    assert month.changes.price_list.charges.group_factors[0].user == ("somebody", "bob")
    assert month.changes.price_list.charges.adjustments[0].payer == "somebody"
    assert (month.total, month.changes.corrections) == (before.total, {})
    for table in ("closings", "closed_texts", "closed_statements"):
        assert all("d\\\\a" not in str(row) for row in site.rows(f"SELECT * FROM {table}"))


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("pattern", ["ada*", "*ada*", "[a]da*"])
def test_a_pattern_of_others_too_stays_when_one_of_them_is_forgotten(
    tmp_path: Path, pattern: str, is_old: bool
) -> None:
    """With another one, the others would be charged otherwise, and their statements corrected."""
    jobs = [job(number, user, IN_SEPTEMBER) for number, user in enumerate(("ada", "adam", "bob"), 1)]
    site = closing_site(tmp_path, *jobs, group_factors=[{"factor": "0.5", "user": [pattern, "ada"]}])
    site.publisher.close_month(SEPTEMBER)
    if is_old:
        make_old(site)
    site.publisher.maintenance.forget(person("ada"), "/CN=somebody")
    (month,) = site.publisher.closed_months()
    assert month.changes.price_list.charges.group_factors[0].user == (pattern, "/CN=somebody")
    assert month.changes.corrections == {}
    assert [one.statement.total for one in month.statements] == [Decimal(text) for text in ("0.11", "0.11", "0.22")]


def make_old(site: Site) -> None:
    """Make the closings those of the first schema with closings: names in the price list, which no digest is over."""
    with site.publisher.store.write() as connection:
        for one in closed_months.closings_of(connection):
            old = {"settings": one.settings, "digest": closed_months.digest_of(connection, one.id, is_whole=False)}
            connection.execute(update(closings).where(closings.c.id == one.id).values(old))


def test_a_closing_of_before_has_successors_and_corrections(site: Site, reckoning: Reckoning) -> None:
    make_old(site)
    late = job(90, "bob", IN_SEPTEMBER)
    come(site, late)
    reckoning.take(late)
    require_conserved(site, reckoning)
    site.publisher.cancel_month(SEPTEMBER, "once more")
    require_conserved(site, reckoning)


def test_meters_are_no_part_of_a_closed_price_list(tmp_path: Path) -> None:
    site = closing_site(tmp_path, *FIRST)
    site.table["energy"] = {"measured": [{"type": "csv", "path": "energy.csv"}]}
    site.reopen()
    site.publisher.close_month(SEPTEMBER)
    (closing,) = (month.changes.closing for month in site.publisher.closed_months())
    assert "energy.csv" not in closing.settings
    stored = msgspec.json.decode(closing.settings)
    stored["energy"]["measured"] = [
        {"type": "csv", "path": "/a.csv", "cluster": None, "ceems_cluster": None, "days": 7}
    ]
    before = msgspec.structs.replace(closing, settings=msgspec.json.encode(stored).decode())
    assert PriceList.of_closing(before) == PriceList.of_closing(closing)


def test_jobs_on_replaced_nodes_are_charged_once(tmp_path: Path) -> None:
    on = {"hosts": (Host("n1"),), "slots": 4}
    replaced = IN_SEPTEMBER - 1800
    old = job(1, "ada", replaced - 10, 3600, **on)
    across = job(2, "bob", IN_SEPTEMBER, 3600, **on)
    new = job(3, "eve", IN_SEPTEMBER + 7200, 3600, **on)
    elsewhere = job(4, "joe", IN_SEPTEMBER, 3600, hosts=(Host("n9"), Host("n1")), slots=4)
    site = closing_site(tmp_path, old, across, new, elsewhere)
    at = f"{datetime.fromtimestamp(replaced, UTC):%Y-%m-%dT%H:%M:%SZ}"
    site.table["nodes"] = [
        {"name": "n1", "cores": 4, "type": "old", "until": at},
        {"name": "n1", "cores": 8, "type": "new", "since": at},
    ]
    prices = [{"resource": "cores", "price": "1", "type": "old"}, {"resource": "cores", "price": "10"}]
    site.table["charges"]["prices"] = prices
    site.reopen()
    site.publisher.close_month(SEPTEMBER)
    (month,) = site.publisher.closed_months()
    totals = {one.statement.payer: str(one.statement.total) for one in month.statements}
    assert totals == {"ada": "4.00", "bob": "4.00", "eve": "40.00", "joe": "22.00"}
    assert not month.changes.corrections


def test_a_price_list_is_read_as_it_was_stored(site: Site) -> None:
    names = {"cluster": "a*", "queue": ["b", "c"]}
    factor = {"factor": "0.5", "group": "g", "user": "u", "project": "p", "vo": "v", "queue": "q", "status": "s"}
    charges = {
        "currency": "NOK", "decimals": 3, "by": "project", "timezone": "Europe/Oslo",
        "prices": [{"resource": "cores", "price": "0.000000001", "type": "x", "hours": "22-06", "name": "n", **names}],
        "group_factors": [{**factor, "account": "a"}], "job_factors": [{**factor, "account": ["a", "b"]}],
        "adjustments": [{"month": "2026-09", "payer": "p", "amount": "-0.5", "reason": "r"}],
    }  # fmt: skip
    node = {
        "name": "n[1-3]", "cores": 4, "type": "x", "cluster": "a", "memory_gib": 3, "virtual_gib": 4, "gpus": 2,
        "watts_idle": "1.5", "watts_max": 99.000001, "since": "2026-01-01T00:00+01:00", "until": "2026-12-31",
    }  # fmt: skip
    power = {"watts_core": 1.234567, "watts_gpu": 1, "watts_gib": 2, "source": "s", "whole_nodes": True, **names}
    energy = {"pue": 1.234, "carbon_g_per_kwh": 0.001, "power": [power]}
    made = PriceList(Charges.model_validate(charges), (Node.model_validate(node),), Energy.model_validate(energy))
    for one in (made.charges, *made.charges.prices, *made.charges.group_factors, *made.nodes, *made.energy.power):
        assert one.model_fields_set == type(one).model_fields.keys()
    (closing,) = (month.changes.closing for month in site.publisher.closed_months())
    stored = closed_months.tokenized(made.to_json(), lambda text: text)
    settings = closed_months.with_names(stored, {})
    assert PriceList.of_closing(msgspec.structs.replace(closing, settings=settings)) == made


def test_a_currency_without_decimals(tmp_path: Path, reckoning: Reckoning) -> None:
    site = closing_site(tmp_path, *FIRST, currency="JPY", decimals=0)
    (ada, bob) = site.publisher.close_month(SEPTEMBER)
    assert [str(one.statement.total) for one in (ada, bob)] == ["0", "0"]
    site.table["charges"] |= charges({"short": "370", "main": "11.1"}) | {"currency": "JPY"}
    site.reopen()
    site.publisher.cancel_month(SEPTEMBER, "yen")
    come(site, job(5, "bob", IN_SEPTEMBER, 1234))
    reckoning.take(job(5, "bob", IN_SEPTEMBER, 1234))
    reckoning.prices[SEPTEMBER] = {"short": "370", "main": "11.1"}
    issued, opened = stated(site)
    assert {key: issued[key] + opened[key] for key in issued} == reckoning.owed(0)
    assert all(amount == int(amount) and amount.as_tuple().exponent == 0 for amount in issued.values())


def test_energy_is_charged_by_run_too(tmp_path: Path) -> None:
    site = closing_site(tmp_path, *FIRST)
    site.table["energy"] = {"pue": "1.5", "power": [{"watts_core": 10}]}
    site.table["charges"] = charges({"main": "0.11"})
    site.table["charges"]["prices"].append({"resource": "energy", "price": "100"})
    site.reopen()
    issued = {one.statement.payer: one.statement for one in site.publisher.close_month(SEPTEMBER)}
    amounts = {payer: [(item.unit, str(item.amount)) for item in one.items] for payer, one in issued.items()}
    # Two cores of 10 W for an hour and a half, or two hours, with PUE.
    assert amounts == {
        "ada": [("core h", "0.22"), ("kWh", "4.50")], "bob": [("core h", "0.44"), ("kWh", "6.00")],
    }  # fmt: skip
    assert "kWh" in issued["bob"].energy
    come(site, job(5, "bob", IN_SEPTEMBER + 99))
    (month,) = site.publisher.closed_months()
    assert {(one.item.unit if one.item else "", str(one.amount)) for one in month.changes.corrections["bob"]} == {
        ("core h", "0.22"), ("kWh", "3.00"),
    }  # fmt: skip


def test_energy_alone_may_have_a_price(tmp_path: Path) -> None:
    """Also such that the millijoules of one run times the PUE are beyond 64 bits."""
    site = closing_site(tmp_path, *FIRST, job(7, "eve", IN_SEPTEMBER, energy_j=2e15))
    site.table["energy"] = {"pue": "1.5", "power": [{"watts_core": 10, "whole_nodes": True}]}
    site.table["charges"] = {"prices": [{"resource": "energy", "price": "100"}]}
    site.reopen()
    issued = [one.statement for one in site.publisher.close_month(SEPTEMBER)]
    amounts = {one.payer: str(one.total) for one in issued}
    assert amounts == {"ada": "4.50", "bob": "6.00", "eve": "83333333333.33"}
    come(site, job(7, "eve", IN_SEPTEMBER, energy_j=1e15))
    (month,) = site.publisher.closed_months()
    assert {payer: [str(one.amount) for one in some] for payer, some in month.changes.corrections.items()} == {
        "eve": ["-41666666666.66"]
    }


def test_lost_runs_whose_energy_has_a_price_are_counted(tmp_path: Path) -> None:
    """One that lasted no time too, whether or not another in its queue used energy."""
    lost = [
        job(number, "eve", IN_SEPTEMBER, wall_s, queue=queue, status="lost")
        for number, (wall_s, queue) in enumerate([(3600, "main"), (0, "main"), (0, "short"), (3600, "free")], 1)
    ]
    site = closing_site(tmp_path, *lost)
    site.table["energy"] = {"power": [{"watts_core": 10}]}
    site.table["charges"] = {"prices": [{"resource": "energy", "price": "100", "queue": ["main", "short"]}]}
    site.reopen()
    (issued,) = [one.statement for one in site.publisher.close_month(SEPTEMBER)]
    assert issued.lost == LostRuns(3, Decimal("2.00"))
    assert [str(item.amount) for item in issued.items] == ["2.00"]
