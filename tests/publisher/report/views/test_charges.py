"""Charges to the cent, on four jobs that are reckoned by hand (see `torque_site`), and the documents they become."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.api import Publisher
from publisher.config.reports import Charges, Factor, Price, StatementRecipient, StatementSettings
from publisher.errors import OutputError, UsageError
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.document import statement_document
from publisher.report.statements.files import Kind, document, write
from publisher.report.statements.items import Used, itemised
from publisher.report.statements.statement import (
    Adjusted,
    LostRuns,
    Statement,
    StatementItem,
    Statements,
    UserCharge,
    notes_on,
)
from publisher.report.views import make
from publisher.report.views.charges import statements
from tests.faults.full_disk import files_no_larger_than
from tests.publisher.cli.program import BASE
from tests.publisher.report.closing_site import closing_site, job
from tests.publisher.report.torque_site import NODES, NOW, table, torque_site, view

FEBRUARY, MARCH, APRIL = 1_769_904_000, 1_772_323_200, 1_775_001_600
PRICES = """
[charges]
currency = "NOK"
[[charges.prices]]
resource = "cores"
price = "0.035"
type = "compute"
[[charges.prices]]
resource = "cores"
price = "0.01"
type = "small"
name = "Cores of small nodes"
[[charges.prices]]
resource = "memory"
price = "0.001"
type = "compute"
[[charges.group_factors]]
factor = "0.5"
group = "phys*"
[[charges.job_factors]]
factor = "3"
queue = "batch"
user = "bob"
[[charges.adjustments]]
month = "2026-03"
payer = "ada"
amount = "-0.105"
reason = "Outage | of the 2nd"
[[charges.adjustments]]
month = "2026-03"
payer = "carol"
amount = "5"
reason = "Left over"
[[charges.adjustments]]
month = "2026-02"
payer = "ada"
amount = "1"
reason = "Of another month"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with torque_site(tmp_path_factory.mktemp("charges"), PRICES) as collected:
        yield collected


def month(publisher: Publisher, **asked: object) -> Statements:
    request = ReportRequest(**{"start": MARCH, "stop": APRIL, **asked})  # type: ignore[arg-type]
    return statements(ReportContext(publisher.store, publisher.config, NOW), request)


def test_to_the_cent(site: Publisher) -> None:
    """By hand. ada, factor 0.5: job 1 held 2 cores for 12 h and job 2 4 cores for 6 h, 48 core hours of n1 (compute):
    48 x 0.035 x 0.5 = 0.84. Memory: job 2 4 GiB for 6 h = 24 GiB h and job 1 1 MiB for 12 h = 12/1024 GiB h:
    24.01171875 x 0.001 x 0.5 = 0.01200..., 0.01. The adjustment is rounded away from zero: -0.105 to -0.11.
    bob, factor 3: job 3 held 1 core of n1 and 2 of n2 for 12 h: 12 x 0.035 x 3 = 1.26 and 24 x 0.01 x 3 = 0.72;
    of its 2 MiB a third was on n1: 682 KiB (rounded down) for 12 h, which rounds to nothing and is left out. Job 4
    still runs and is not charged yet.
    """
    found = month(site)
    assert [(one.payer, str(one.total)) for one in found.all] == [("ada", "0.74"), ("bob", "1.98"), ("carol", "5.00")]
    items = {
        one.payer: [(item.name, float(item.quantity), str(item.amount)) for item in one.items] for one in found.all
    }
    assert items["ada"] == [
        ("cores (compute)", 48.0, "0.84"),
        ("memory (compute)", 24.01171875, "0.01"),
    ]
    assert items["bob"] == [
        ("cores (compute)", 12.0, "1.26"),
        ("Cores of small nodes", 24.0, "0.72"),
    ]
    assert [(item.name, float(item.quantity), str(item.amount)) for item in found.all[1].left_out] == [
        ("memory (compute)", pytest.approx(12 * 682 / 1024 / 1024), "0.00")
    ]
    assert found.all[0].adjustments == (Adjusted(Decimal("-0.11"), "Outage | of the 2nd"),)
    assert found.price_notes == (
        f"{12 * 1365 / 1024 / 1024:.3f} GiB h on nodes of type small in queue batch have no price and are not charged.",
        "The adjustment for carol is alone on its statement, because no job has this user: check its name.",
    )


@pytest.mark.parametrize(
    ("currency", "decimals", "said"),
    [("JPY", 2, "JPY has 0 decimals"), ("KWD", 4, "KWD has 3 decimals"), ("JPY", 0, None), ("KWD", 2, None)],
)
def test_decimals_that_a_currency_does_not_have(tmp_path: Path, currency: str, decimals: int, said: str | None) -> None:
    site = closing_site(tmp_path, job(1, "ada", MARCH + 9), currency=currency, decimals=decimals)
    notes = month(site.publisher).price_notes
    assert [note.partition(",")[0] for note in notes] == ([said] if said else [])


def test_jobs_without_the_word_of_their_payer_are_named(tmp_path: Path) -> None:
    site = closing_site(tmp_path, job(1, "ada", MARCH + 9), by="project")
    assert month(site.publisher).price_notes[0].startswith("Jobs without project are charged to (unknown).")


def test_the_view_has_every_line_and_the_sums(site: Publisher) -> None:
    found = view(site, "charges", start=MARCH, stop=APRIL)
    assert table(found, "user", "item", "amount")[-3:] == [
        ("carol", "adjustment: Left over", Decimal("5.00")),
        ("carol", "total", Decimal("5.00")),
        ("(all)", "total", Decimal("7.72")),
    ]
    assert found.facts["all"] == "7.72"
    assert (
        found.notes[0] == "The month is not over: these are the charges of jobs that ended up to 2026-03-03T18:00:00Z."
    )
    assert found.notes[-1] == (
        "No line for 1 item of 1 of 3 payers: each amount rounds to 0.00 NOK. The statements name them."
    )
    assert found.facts["items_that_round_to_nothing"] == 1
    by_group = view(site, "charges", start=MARCH, stop=APRIL, by=("group",))
    assert by_group.facts["totals"] == {"chem": "1.98", "physics": "0.85"}, "what was decided is of users"


def test_a_line_for_each_user_and_the_total_of_the_year(site: Publisher) -> None:
    """No job has a project, so both users are one payer. An adjustment of February is in the total of the year."""
    made = month(site, by=("project",))
    (nobody,) = made.all
    assert [(one.user, str(one.amount)) for one in nobody.users] == [("bob", "1.98"), ("ada", "0.85")]
    assert [(float(held), unit) for held, unit in nobody.users[1].quantities] == [
        (48.0, "core h"),
        (24.01171875, "GiB h"),
    ]
    texts = statement_document(made, nobody)
    assert [line[0] for line in texts.users] == ["bob", "ada"]
    by_user = month(site)
    assert [one.users for one in by_user.all] == [(), (), ()]
    assert {one.payer: str(one.year_total) for one in by_user.all} == {"ada": "1.74", "bob": "1.98", "carol": "5.00"}
    assert (str(by_user.total), str(by_user.year_total)) == ("7.72", "8.72")
    assert texts.year == ("Total NOK since 2026-01-01", "2.83")
    for kind in ("text", "html"):
        said = shown(made, nobody, kind)  # type: ignore[arg-type]
        assert "Total NOK since 2026-01-01" in said
        assert "Of which by user" in said


def test_lines_of_users_add_up_to_the_items(site: Publisher) -> None:
    cent = msgspec.structs.replace(month(site, by=("project",)).all[0], users=(UserCharge("ada", (), Decimal("2.80")),))
    assert statement_document(month(site, by=("project",)), cent).users == (
        ("ada", "", "2.80"), ("(rounding)", "", "0.03"),
    )  # fmt: skip


def test_months_without_runs_and_intervals_that_are_none(site: Publisher) -> None:
    assert [one.payer for one in month(site, start=FEBRUARY, stop=MARCH).all] == ["ada"]
    with pytest.raises(UsageError, match="whole month"):
        month(site, stop=APRIL - 1)
    with pytest.raises(UsageError, match="choose one of: user, group"):
        month(site, by=("host",))
    without = site.config.model_copy(update={"charges": type(site.config.charges)()})
    with pytest.raises(UsageError, match="no price list"):
        statements(ReportContext(site.store, without, NOW), ReportRequest(start=MARCH, stop=APRIL))


def shown(made: Statements, one: Statement, kind: Kind = "text") -> str:
    """The text of a statement in a kind of document."""
    return document(made, one, kind).decode()


class _PageText(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.cells.append(data.strip())


def test_documents(site: Publisher, tmp_path: Path) -> None:
    made = month(site)
    files = write(made, tmp_path, ("text", "html", "pdf"))
    assert sorted(path.name for path in files.paths) == sorted(
        f"{payer}.{suffix}" for payer in ("ada", "bob", "carol") for suffix in ("txt", "html", "pdf")
    )
    assert files.replaced == 0
    assert write(made, tmp_path, ("text",)).replaced == 3
    text = (tmp_path / "2026-03" / "ada.txt").read_text()
    assert ["Total", "NOK", "0.74"] in [line.split() for line in text.splitlines()]
    assert [line.split() for line in text.splitlines() if "Outage" in line] == [
        ["3", "Outage", "|", "of", "the", "2nd", "-0.11"]
    ]
    assert "Not charged" not in text
    assert "The month is not over: these are the charges of jobs that ended up to 2026-03-03T18:00:00Z." in " ".join(
        text.split()
    )
    over = statements(ReportContext(site.store, site.config, APRIL), ReportRequest(start=MARCH, stop=APRIL))
    assert "not over" not in shown(over, over.all[0]) + shown(over, over.all[0], "html")
    crumbs = "Not charged, because the amount rounds to 0.00 NOK: memory (compute), 0.008 GiB h."
    for file in ("bob.txt", "bob.html"):
        assert crumbs in " ".join((tmp_path / "2026-03" / file).read_text().split())
    page = _PageText()
    page.feed((tmp_path / "2026-03" / "ada.html").read_text())
    assert {"48.000", "0.035", "0.84", "0.74"} <= set(page.cells)
    assert (tmp_path / "2026-03" / "ada.pdf").read_bytes().startswith(b"%PDF")


def test_hostile_names_are_text_and_stay_in_the_folder(tmp_path: Path) -> None:
    item = StatementItem(
        "cores", "<b>cores</b>", Decimal(1), "core h", Decimal(1), Decimal(1), Decimal(1), Decimal("1.00")
    )  # type: ignore[arg-type]
    names = ("../../etc/passwd", ".hidden", "<script>alert(1)</script>", "名前\x1b[31m", "a/b", "a_b", "x" * 300)
    made = Statements(
        month="2026-03", start=MARCH, stop=APRIL, site="S & <i>", by="user", currency="EUR", decimals=2, price_notes=(),
        nothing=None, made_at=APRIL, settings=StatementSettings(footer="<i>"),
        all=tuple(Statement(name, (item,), ()) for name in names),
    )  # fmt: skip
    files = write(made, tmp_path, ("text", "html", "pdf")).paths
    assert len(set(files)) == 3 * len(names)
    assert {file.parent for file in files} == {tmp_path / "2026-03"}
    assert all(file.is_file() for file in files)
    for one in made.all:
        page = _PageText()
        page.feed(shown(made, one, "html"))
        assert not page.tags & {"script", "b", "i"}
        assert "\x1b" not in shown(made, one)


def test_a_statement_of_nothing_but_crumbs_has_cents(site: Publisher) -> None:
    """Everything so cheap that every item rounds to nothing."""
    prices = (Price(resource="cores", price=Decimal("0.000001")),)
    cheap = site.config.model_copy(update={"charges": Charges(prices=prices)})
    made = statements(ReportContext(site.store, cheap, NOW), ReportRequest(start=MARCH, stop=APRIL))
    assert {(one.payer, one.items, str(one.total)) for one in made.all} == {("ada", (), "0.00"), ("bob", (), "0.00")}
    text = shown(made, made.all[0])
    assert ["Total", "EUR", "0.00"] in [line.split() for line in text.splitlines()]
    assert "rounds to 0.00 EUR: cores, 48.000 core h." in " ".join(text.split())


def test_long_statements_have_pages(site: Publisher) -> None:
    made = month(site)
    (ada, *_) = made.all
    long = msgspec.structs.replace(ada, items=tuple(item for item in ada.items for _ in range(22)))
    content = document(made, long, "pdf")
    assert len(re.findall(rb"/Type /Page\b", content)) == 3
    assert content == document(made, long, "pdf"), "the same bytes"


def of_payers(all_of_them: tuple[Statement, ...]) -> Statements:
    return Statements(
        month="2026-03", start=MARCH, stop=APRIL, site="S", by="project", currency="EUR", decimals=2, price_notes=(),
        nothing=None, made_at=APRIL, settings=StatementSettings(number="{month}/{payer}"), all=all_of_them,
    )  # fmt: skip


def item_of(name: str, quantity: Fraction, applies_to: str = "") -> StatementItem:
    return StatementItem(
        "cores", name, quantity, "core h", Decimal(1), Decimal(1), Decimal(1), Decimal("1.00"), applies_to
    )  # fmt: skip


_LETTER = re.compile(rb"\((?:\x00\\?.)+\) Tj", re.DOTALL)


def letters_of(pdf: bytes) -> list[int]:
    """How often each letter of a font's subset is drawn, the most frequent first."""
    counts: Counter[bytes] = Counter()
    for stream in re.findall(rb"stream\n(.*?)\nendstream", pdf, re.DOTALL):
        with suppress(zlib.error):
            for text in _LETTER.findall(zlib.decompress(stream)):
                counts.update(text[at : at + 2] for at in range(1, len(text) - 4, 2))
    return [count for _, count in counts.most_common()]


NAMES = {
    "one word": "x" * 5_000, "widest letters": "\u2031" * 5_000, "words": "chemistry " * 500,
    "control": "a\x00\x1b\n" * 1_250, "right to left": "\u05e9\u05dc\u05d5\u05dd " * 1_000,
    "override": "a\u202eb" * 1_700, "spaces": " " * 5_000,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_statement_is_made_of_any_name(tmp_path: Path, name: str) -> None:
    """fpdf refuses a row of a table that is higher than a page."""
    one = Statement(
        name, (item_of(name, Fraction(1), name), item_of("cores", Fraction(1), name)), (Adjusted(Decimal(1), name),),
        users=(UserCharge(name, ((Fraction(1), "core h"),), Decimal(1)),),
    )  # fmt: skip
    files = write(of_payers((Statement("a", (), ()), one)), tmp_path, ("text", "html", "pdf"))
    assert len(files.paths) == 6
    content = files.paths[-1].read_bytes()
    assert content.startswith(b"%PDF")
    if name == NAMES["one word"]:
        assert letters_of(content)[0] > 7 * 5_000, "wherever it is, it is whole: also in the columns of tables"


def test_a_statement_that_cannot_be_made_leaves_no_part_of_the_month(tmp_path: Path) -> None:
    beyond = Statement("b", (item_of("cores", Fraction(10**400)),), ())
    with pytest.raises(OverflowError):
        write(of_payers((Statement("a", (), ()), beyond)), tmp_path, ("text",))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_statements_of_a_month_as_they_were(tmp_path: Path) -> None:
    """Never a part of them beside earlier ones."""
    before, after = (
        of_payers((Statement("a", (item_of("cores", Fraction(cost)),), ()), Statement("b", (), ()))) for cost in (1, 2)
    )
    write(before, tmp_path, ("text",))
    folder = tmp_path / "2026-03"
    contents = {path.name: path.read_bytes() for path in folder.iterdir()}
    large = Statement("b", (), (Adjusted(Decimal(1), "x " * (1 << 15)),))
    with files_no_larger_than(1 << 15), pytest.raises(OutputError, match=r"File too large\. Free space .* --output"):
        write(msgspec.structs.replace(after, all=(after.all[0], large)), tmp_path, ("text",))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == contents
    assert write(after, tmp_path, ("text",)).replaced == 2
    assert (folder / "a.txt").read_bytes() != contents["a.txt"]


SENDER = StatementSettings(
    sender="Example Centre\n1 Street\n",
    number="{site}/{month}/{payer}",
    footer="Pay to 1234",
    recipients=(
        StatementRecipient(payer=("ada", "eve"), address="Ada's Institute\nOslo", reference="PO 4711"),
        StatementRecipient(payer="*", address="Anybody"),
    ),
)


def test_what_one_who_gets_it_needs(site: Publisher) -> None:
    """Sender, recipient, number, date, period, currency, subtotals, and how it was computed; the same in each kind."""
    made = msgspec.structs.replace(month(site), settings=SENDER)
    facts = {
        "Statement number": "EXAMPLE-SITE/2026-03/ada", "Date": "2026-03-03", "Currency": "NOK", "Site": "EXAMPLE-SITE",
        "Period": "2026-03-01 to 2026-03-31 (UTC)", "User": "ada", "Your reference": "PO 4711",
        "Status": "preliminary: jobs that ended up to 2026-03-03T18:00:00Z",
    }  # fmt: skip
    texts = statement_document(made, made.all[0])
    assert dict(texts.facts) == facts
    assert (texts.sender, texts.recipient) == (("Example Centre", "1 Street"), ("Ada's Institute", "Oslo"))
    assert [(one.title, one.subtotal) for one in texts.sections] == [
        ("Cores", "0.84"), ("Memory", "0.01"), ("Adjustments", "-0.11")
    ]  # fmt: skip
    page = _PageText()
    page.feed(shown(made, made.all[0], "html"))
    text = shown(made, made.all[0])
    for said in (*facts.values(), "Example Centre", "Ada's Institute", "Pay to 1234", "Total NOK", "Subtotal Cores"):
        assert said in text
        assert any(said in cell for cell in page.cells)
    bob = statement_document(made, made.all[1])
    assert (bob.recipient, "Your reference" in dict(bob.facts)) == (("Anybody",), False)
    plain = statement_document(month(site), made.all[1])
    assert (plain.number, plain.sender, plain.recipient) == ("2026-03-bob", ("EXAMPLE-SITE",), ("bob",))


def test_amounts_are_those_of_the_report(site: Publisher) -> None:
    made = month(site)
    report = view(site, "charges", start=MARCH, stop=APRIL)
    for one in made.all:
        texts = statement_document(made, one)
        amounts = [line.cells[-1] for section in texts.sections for line in section.lines]
        (place,) = [place for place, column in enumerate(report.columns) if column.name == "amount"]
        assert [*amounts, texts.total] == [f"{row[place]:,f}" for row in report.rows if row[0] == one.payer]
        assert sum(Decimal(section.subtotal) for section in texts.sections) == one.total


RERUNS = """\
03/04/2026 00:00:00;S;11.srv;user=eve group=chem queue=batch ctime={t} qtime={t} etime={t} start={t} exec_host=n1/0-1
03/04/2026 02:00:00;R;11.srv;
03/04/2026 00:00:00;S;12.srv;user=eve group=chem queue=batch ctime={t} qtime={t} etime={t} start={t} exec_host=n2/0
03/04/2026 01:00:00;R;12.srv;
03/04/2026 00:00:00;S;13.srv;user=dan group=chem queue=free ctime={t} qtime={t} etime={t} start={t} exec_host=n2/0
03/04/2026 01:00:00;R;13.srv;
"""


def test_lost_runs_are_charged_with_a_note(tmp_path: Path) -> None:
    """eve's two runs that were restarted without usage: 2 cores of n1 for 2 h and 1 of n2 for 1 h at 0.10, 0.50 in all.
    The factor of queue `free` is 0, so that nothing is charged for dan's."""
    prices = """
[charges]
[[charges.prices]]
resource = "memory"
price = "1"
[[charges.prices]]
resource = "cores"
price = "0.1"
[[charges.job_factors]]
factor = "0"
queue = "free"
"""
    logs = tmp_path / "accounting"
    logs.mkdir()
    (logs / "20260304").write_text(RERUNS.format(t=1_772_582_400))
    config = tmp_path / "publisher.toml"
    config.write_text(BASE + f'\n[sources.torque]\ntype = "torque"\npath = "{logs}"\n{NODES}{prices}')
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        context = ReportContext(publisher.store, publisher.config, APRIL)
        request = ReportRequest(start=MARCH, stop=APRIL)
        made, facts = statements(context, request), make("charges", context, request).facts
    assert {one.payer: one.lost for one in made.all} == {"dan": None, "eve": LostRuns(2, Decimal("0.50"))}
    (note,) = notes_on(made)
    assert note == (
        "2 lost runs of 1 of 2 payers: 0.50 EUR are charged for estimated times. A job factor of 0 for the status lost "
        "charges nothing for them."
    )
    eve = " ".join(shown(made, made.all[1]).split())
    assert "Estimated: 0.50 EUR for 2 lost runs whose usage the batch system did not report." in eve
    assert "Estimated" not in shown(made, made.all[0])
    assert (facts["lost_runs"], facts["charged_for_lost_runs"]) == (2, "0.50")


def test_items_with_equal_prices_and_factors_are_distinguished() -> None:
    """Two factors of 2 for different queues, and a price with a name."""
    charges = Charges(
        prices=(Price(resource="cores", price=Decimal(1), name="Cores", type="fat", hours="22-06"),),
        job_factors=(Factor(factor=Decimal(2), queue="short"), Factor(factor=Decimal(2), queue=("gpu", "big*"))),
    )
    uses = {Used("ada", "cores", 0, -1, job): 3_600_000 for job in (-1, 0, 1)}
    items, _ = itemised(charges, uses)["ada"]
    assert [item.applies_to for item in items] == [
        "type fat, hours 22-06", "type fat, hours 22-06; queue short", "type fat, hours 22-06; queue gpu or big*",
    ]  # fmt: skip
    assert len({(item.name, item.applies_to) for item in items}) == 3


@pytest.mark.parametrize("number", ["{month}", "{payer}", "2026", "{month}-{payer}-{colour}", "{", "{month}{payer}{0}"])
def test_numbers_that_would_not_be_unique(number: str) -> None:
    with pytest.raises(ValueError, match=r"may only contain|the same number"):
        StatementSettings(number=number)


_amounts = st.decimals(min_value=0, max_value=1000, places=4)
_uses = st.tuples(st.sampled_from(["ada", "bob"]), st.integers(0, 1), st.integers(-1, 1), st.integers(-1, 0))


@given(
    st.lists(_amounts, min_size=2, max_size=2),
    st.lists(_amounts, min_size=3, max_size=3),
    st.dictionaries(_uses, st.integers(1, 10**13)),
    st.integers(0, 3),
)
def test_statements_add_up_to_the_cent(
    prices: list[Decimal], factors: list[Decimal], uses: dict[tuple[str, int, int, int], int], decimals: int
) -> None:
    """A total is the sum of its lines; what was left out would add nothing; no statement is far from the exact sum."""
    charges = Charges(
        decimals=decimals,
        prices=tuple(Price(resource="cores", price=price) for price in prices),
        group_factors=tuple(Factor(factor=factor) for factor in factors[:2]),
        job_factors=(Factor(factor=factors[2]),),
    )
    found = itemised(charges, {Used(who, "cores", *rest): usage for (who, *rest), usage in uses.items()})
    assert found.keys() == {who for who, *_ in uses}
    half = Fraction(1, 2 * 10**decimals)
    for who, (lines, left_out) in found.items():
        one = Statement(who, lines, (), left_out)
        assert one.total == sum((item.amount for item in lines), Decimal(0))
        assert -one.total.as_tuple().exponent <= decimals  # type: ignore[operator]
        exact = Fraction(0)
        for item in (*lines, *left_out):
            comes_to = item.quantity * Fraction(item.price) * Fraction(item.group_factor) * Fraction(item.job_factor)
            assert abs(comes_to - Fraction(item.amount)) <= half
            exact += comes_to
            assert (item in left_out) == (comes_to > 0 and item.amount == 0)
        assert len(lines) + len(left_out) == sum(each[0] == who for each in uses)
        assert abs(exact - Fraction(one.total)) <= half * len((*lines, *left_out))
