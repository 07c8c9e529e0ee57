"""The configuration: every wrong input is one error that names file, key and what is allowed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config import file as config_file
from publisher.config.schema import Config
from publisher.errors import ConfigError

GOOD = """
[site]
name = "EXAMPLE-SITE"
[sources.ce1]
type = "arc"
path = "accounting.db"
[targets.neic]
type = "sgas"
url = "https://sgas.example.org:6143/sgas"
"""
AMS = '[targets.{name}]\ntype = "ams"\nurl = "{url}"\nrecords = "{records}"\n'
SPOOL = '[targets.{name}]\ntype = "directory"\npath = "{url}"\nrecords = "{records}"\n'


def load(folder: Path, text: str | bytes) -> Config:
    file = folder / "publisher.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return config_file.load(file)


def refused(folder: Path, text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(folder, text)
    assert caught.value.exit_code == 2
    assert str(folder / "publisher.toml") in str(caught.value)
    return caught.value


def test_a_good_file_is_understood(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    assert config.site.name == "EXAMPLE-SITE"
    assert config.file == tmp_path / "publisher.toml"
    assert config.store.url == "sqlite:////var/lib/usage-publisher/store.db"
    assert config.targets["neic"].batch_records == 100


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        (GOOD + "batch_record = 7", "targets.neic.batch_record", ("did you mean 'batch_records'", "Known here: ")),
        (GOOD + "[target.x]\n", "target", ("did you mean 'targets'",)),
        (GOOD.replace('name = "', 'nam = "'), "site.nam", ("did you mean 'name'",)),
        (GOOD.replace("url = ", "ulr = "), "targets.neic.ulr", ("did you mean 'url'",)),
        (GOOD + "workers = '3'", "targets.neic.workers", ("must be a whole number",)),
        (
            GOOD + "[sources.ce1.benchmark]\ntype = 'hepspec'\nvalue = '1'", "sources.ce1.benchmark.value",
            ("must be a number",),
        ),
        (GOOD + "shadow = 'yes'", "targets.neic.shadow", ("must be true or false",)),
        (GOOD + '[sources.ce2]\ntype = "arc"\ntimezon = "UTC"', "sources.ce2.timezon", ("'timezone'",)),
        (GOOD + "[credentials]\nkeys = 1", "credentials.keys", ("'key'",)),
        (GOOD + "[targets.neic.credentials]\nkay = 'x'", "targets.neic.credentials.kay", ("'key'",)),
        (GOOD.replace("neic", "sgas") + "batch_record = 7", "targets.sgas.batch_record", ("'batch_records'",)),
        ("[site]\n", "site.name", ("is missing", "GOCDB")),
        ("", "site", ("is missing",)),
        (GOOD + "[targets.x]\ntype = 'sgas'\n", "targets.x.url", ("is missing",)),
        (GOOD + "[targets.x]\nurl = 'https://x'\n", "targets.x.type", ("is missing", "sgas, ams, https, directory")),
        (GOOD + "[targets.x]\ntype = 'sgass'\n", "targets.x.type", ("'sgass'", "sgas", "ams", "https", "directory")),
        (GOOD + "timeout = 'soon'", "targets.neic.timeout", ("must be a duration",)),
        (GOOD + "timeout = -1", "targets.neic.timeout", ("negative",)),
        (GOOD + "timeout = inf", "targets.neic.timeout", ("infinite",)),
        (GOOD + "since = 'yesterday'", "targets.neic.since", ("must be a time such as",)),
        (GOOD + "since = 2026", "targets.neic.since", ("must be a time such as",)),
        (GOOD.replace("path =", "timezone = 'Oslo'\npath ="), "sources.ce1.timezone", ("must be a time zone",)),
        (GOOD.replace("path =", "timezone = '../etc'\npath ="), "sources.ce1.timezone", ("must be a time zone",)),
        (GOOD + "batch_records = 0", "targets.neic.batch_records", ("must be 1 or more",)),
        (GOOD + "batch_records = 'many'", "targets.neic.batch_records", ("must be a whole number",)),
        (GOOD + "local_jobs = 'maybe'", "targets.neic.local_jobs", ("'send' or 'skip'",)),
        (GOOD + "vo = 'atlas'", "targets.neic.vo", ("must be a list: write [\"atlas\"]",)),
        (GOOD + "records = 'emi-car'", "targets.neic.records", ("'ogf-ur'",)),
        (GOOD + "[credentials]\ncertificate = 'x'", "credentials", ("go together",)),
        (GOOD + "[store]\nurl = 'mysql://x'", "store.url", ("sqlite:////path",)),
        (GOOD + "[store]\nurl = 'sqlite://'", "store.url", ("sqlite:////path",)),
        ("targets = 7\n[site]\nname = 'x'\n", "targets", ()),
        (GOOD + "sources = ['ce9']", "", ("'ce9'", "known: ce1")),
        (
            GOOD.replace("path =", "benchmark = { type = 'HEPSPEC', value = 0 }\npath ="),
            "sources.ce1.benchmark.value", ("must be greater than 0",),
        ),
        (
            GOOD.replace("path =", "benchmark = { type = 'HEPscore32', value = 1 }\npath ="),
            "sources.ce1.benchmark.type", ("'HEPscore32'", "HEPscore23, HEPSPEC, Si2k", "did you mean 'HEPscore23'?"),
        ),
        (GOOD + "benchmark_type = 'HEPSPEK'", "targets.neic.benchmark_type", ("did you mean 'HEPSPEC'?",)),
        (GOOD + "unknown_vo = 'holt'", "targets.neic.unknown_vo", ("'hold', 'send' or 'skip'", "did you mean 'hold'?")),
        (GOOD.replace("https:", "http:"), "targets.neic.url", ("write https://sgas.example.org:6143/sgas",)),
        (GOOD.replace("https://", "ftp://"), "targets.neic.url", ("must be a URL that begins with https://",)),
        (GOOD.replace("https://", "https:///"), "targets.neic.url", ("must be a URL that begins with https://",)),
        (GOOD.replace("https://", "https://me:hunter2@"), "targets.neic.url", ("a user name or a password",)),
        (GOOD.replace(":6143", ":port"), "targets.neic.url", ("is not a URL: Port",)),
        (GOOD.replace('"arc"', '"ark"'), "sources.ce1.type", ("'ark'", "gridengine", "did you mean 'arc'?")),
        (GOOD + "[notices]\nmail_too = []", "notices.mail_too", ("did you mean 'mail_to'", "smtp")),
    ],
)  # fmt: skip
def test_wrong_input_is_named(tmp_path: Path, text: str, key: str, said: tuple[str, ...]) -> None:
    error = refused(tmp_path, text)
    assert error.key.startswith(key)
    for words in said:
        assert words in str(error)


@pytest.mark.parametrize(
    ("one", "other"),
    [("apel-job", "apel-summary"), ("emi-car", "apel-normalised-summary"), ("apel-summary", "emi-car")],
)
@pytest.mark.parametrize(("form", "place"), [(AMS, "https://msg.example.org"), (SPOOL, "outgoing")])
def test_job_records_and_summaries_are_never_sent_to_one_service(
    tmp_path: Path, one: str, other: str, form: str, place: str
) -> None:
    text = GOOD + form.format(name="a", url=place, records=one)
    same = place + "/"
    error = refused(tmp_path, text + form.format(name="b", url=same, records=other))
    assert "targets.a and targets.b" in str(error)
    load(tmp_path, text + form.format(name="b", url=place, records=one))
    load(tmp_path, text + form.format(name="b", url=place + "2", records=other))


PORTAL = """
[targets.portal]
type = "https"
url = "https://reports.example.org/usage"
records = "utilization"
sign = true
"""


def test_a_target_of_reports(tmp_path: Path) -> None:
    portal = load(tmp_path, GOOD + PORTAL).targets["portal"]
    assert (portal.period, portal.bin, portal.measure, portal.select.patterns) == ("month", 3600, "queue", {})
    text = PORTAL + 'period = "day"\nbin = "15m"\nmeasure = "cpu"\nselect = { queue = "long*", vo = "atlas" }\n'
    portal = load(tmp_path, GOOD + text).targets["portal"]
    assert (portal.period, portal.bin, portal.measure) == ("day", 900, "cpu")
    assert portal.select.patterns == {"queue": "long*", "vo": "atlas"}
    for form, place in ((AMS, "https://msg.example.org"), (SPOOL, "outgoing")):
        load(tmp_path, GOOD + form.format(name="a", url=place, records="utilization"))


@pytest.mark.parametrize(
    ("line", "key", "said"),
    [
        ('period = "week"', "targets.portal.period", "'day' or 'month'"),
        ('bin = "0s"', "targets.portal.bin", "finer than a second"),
        ('bin = "1s"', "targets.portal.bin", "too many"),
        ('bin = "1.5s"', "targets.portal.bin", "whole number of seconds"),
        ('version = "xml"', "targets.portal.version", "json and csv"),
        ('select = { colour = "blue" }', "targets.portal.select.colour", "Known here: queue, host"),
    ],
)
def test_what_makes_no_sense_for_reports(tmp_path: Path, line: str, key: str, said: str) -> None:
    error = refused(tmp_path, GOOD + PORTAL + line)
    assert error.key == key
    assert said in str(error)


@pytest.mark.parametrize("line", ['period = "day"', "bin = 60", 'measure = "cpu"', "select = {}"])
def test_what_is_for_reports_is_refused_elsewhere(tmp_path: Path, line: str) -> None:
    error = refused(tmp_path, GOOD + SPOOL.format(name="a", url="outgoing", records="apel-summary") + line)
    assert "is for reports" in str(error)


@pytest.mark.parametrize(
    ("records", "version", "known"),
    [
        ("apel-job", "0.2", "0.3 and 0.4"),
        ("apel-summary", "0.3", "0.2 and 0.4"),
        ("apel-normalised-summary", "1", "0.3 and 0.4"),
        ("emi-car", "1.3", "1.2"),
        ("ogf-ur", "2.0", "1.0"),
        ("utilization", "vjson", "json and csv"),
    ],
)
def test_a_version_that_a_format_has_not(tmp_path: Path, records: str, version: str, known: str) -> None:
    target = SPOOL.format(name="a", url="outgoing", records=records)
    error = refused(tmp_path, f'{GOOD}{target}version = "{version}"')
    assert error.key == "targets.a.version"
    assert f"version: {records} has no version '{version}'; it has {known}" in str(error)


@pytest.mark.parametrize(("records", "version"), [("apel-job", "v0.4"), ("emi-car", "1.2"), ("utilization", "csv")])
def test_a_version_that_a_format_has(tmp_path: Path, records: str, version: str) -> None:
    target = SPOOL.format(name="a", url="outgoing", records=records)
    assert load(tmp_path, f'{GOOD}{target}version = "{version}"').targets["a"].version == version


def test_relative_paths_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    text = GOOD + "[store]\nurl = 'sqlite:///state/store.db'\n[credentials]\ncertificate = '../c.pem'\nkey = '/k.pem'\n"
    (folder / "publisher.toml").write_text(text)
    config = config_file.load(Path("etc/publisher.toml"))
    assert config.store.url == f"sqlite:///{folder}/state/store.db"
    assert config.sources["ce1"].path == folder / "accounting.db"
    assert config.credentials.certificate is not None
    assert config.credentials.certificate.resolve() == tmp_path / "c.pem"
    assert config.credentials.key == Path("/k.pem")


def test_what_is_not_toml_is_reported_with_its_line(tmp_path: Path) -> None:
    assert "is not TOML" in str(refused(tmp_path, "[site\n"))
    assert ".toml:1: " in str(refused(tmp_path, "[site\n"))
    assert "is not TOML" in str(refused(tmp_path, GOOD + "[site]\nname = 'twice'"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[site]\nname "B"\n',
            ".toml:2: is not TOML: column 6: Expected '=' after a key in a key/value pair: name >>>\"B\"",
        ),
        ("[site]\r\nname = \r\n", ".toml:2: is not TOML: column 8: Invalid value: name = >>>"),
        ("[site]\n\n# end\nname = [1,\n\n\n", ".toml:4: is not TOML: column 11: Invalid value: name = [1,>>>"),
        ('url = "postgresql://me:secret@host/x" 7\n', 'url = "postgresql://me:...@host/x" >>>7'),
        (f"x = {'1' * 500} y\n", f": ...{'1' * 79} >>>y"),
    ],
)
def test_a_mistake_in_toml_is_shown_in_its_line(tmp_path: Path, text: str, said: str) -> None:
    error = refused(tmp_path, text)
    assert said in error.message
    assert "secret" not in str(error)


def test_what_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    assert "is not UTF-8 text (byte 16)" in str(refused(tmp_path, b'[site]\nname = "B\xf8"'))


def test_a_missing_file_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no configuration file.*init"):
        config_file.load(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        config_file.load(tmp_path)


def test_where_the_file_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(config_file.ENVIRONMENT_KEY, raising=False)
    assert config_file.find() == Path("/etc/usage-publisher/publisher.toml")
    monkeypatch.setenv("USAGE_PUBLISHER_CONFIG", str(tmp_path / "other.toml"))
    assert config_file.find() == tmp_path / "other.toml"
    assert config_file.find(Path("given.toml")) == Path("given.toml")
    (tmp_path / "other.toml").write_text(GOOD)
    assert config_file.load().site.name == "EXAMPLE-SITE"
    monkeypatch.setenv("USAGE_PUBLISHER_CONFIG", "")
    assert config_file.find() == config_file.DEFAULT_PATH


def test_secrets_are_not_in_errors(tmp_path: Path) -> None:
    error = refused(tmp_path, GOOD + "proxy = ['http://user:hunter2@proxy']")
    assert "hunter2" not in str(error)


def test_a_target_fills_its_credentials_from_the_common_ones(tmp_path: Path) -> None:
    text = GOOD + "[targets.neic.credentials]\nca_file = '/own.pem'\n"
    text += "[credentials]\ncertificate = '/c.pem'\nkey = '/k.pem'\nca_directory = '/ca'\n"
    config = load(tmp_path, text)
    merged = config.credentials_of(config.targets["neic"])
    assert (merged.certificate, merged.key) == (Path("/c.pem"), Path("/k.pem"))
    assert (merged.ca_file, merged.ca_directory) == (Path("/own.pem"), None)


def test_settings_cannot_be_changed_afterwards(tmp_path: Path) -> None:
    config = load(tmp_path, GOOD)
    with pytest.raises(ValueError, match="frozen"):
        config.site.name = "OTHER"


@pytest.mark.parametrize(
    ("table", "key", "reported"),
    [
        ('format = "classic"', "spool.x", "needs a path"),
        ('format = "classic"\npath = "x"\nurl = "sqlite:///y"', "spool.x", "and no url"),
        ('format = "database"\nurl = "mysql://x"', "spool.x.url", "is not the URL of a store"),
        ('format = "database"', "spool.x", "needs a url"),
        ('format = "csv"\npath = "x"', "spool.x.format", "classic"),
        ('format = "delimited"\npath = "x"\ndelimiter = ","', "spool.x.delimiter", "delimited"),
        ('format = "delimited"\npath = "x"\ndelimiter = "::"', "spool.x.delimiter", "must be one character"),
        ('format = "xml"\npath = "x"\nkinds = []', "spool.x.kinds", "kinds"),
        ('format = "xml"\npath = "x"\nkind = ["jobs"]', "spool.x.kind", "did you mean 'kinds'?"),
    ],
)
def test_what_is_wrong_with_a_spooling_context_is_reported(tmp_path: Path, table: str, key: str, reported: str) -> None:
    error = refused(tmp_path, f'[site]\nname = "A"\n[spool.x]\n{table}\n')
    assert error.key == key
    assert reported in str(error)


def test_ages_of_the_store_are_months(tmp_path: Path) -> None:
    config = load(tmp_path, '[site]\nname = "A"\n[store]\nkeep_jobs = "3 years"\n')
    assert config.store.keep_jobs == 36
    assert refused(tmp_path, '[site]\nname = "A"\n[store]\nkeep_jobs = "90d"\n').key == "store.keep_jobs"


TOKEN = 'token_file = "t"'
CLIENT = 'token_url = "https://aai.example.org/token"\nclient_id = "a"\nclient_secret_file = "s"'


@pytest.mark.parametrize(
    ("credentials", "key", "reported"),
    [
        (f"{TOKEN}\n{CLIENT}", "credentials.token_file", "and token_url are both set"),
        (
            'client_id = "a"',
            "credentials.token_url",
            "is missing: token_url, client_id, client_secret_file go together",
        ),
        ('token_header = "X-API-Key"', "credentials.token_header", "needs token_file or token_url"),
        (f'{TOKEN}\ntoken_header = "Content-Length"', "credentials.token_header", "has another meaning in HTTP"),
        (f'{TOKEN}\ntoken_header = "X: y"', "credentials.token_header", "must be the name of an HTTP header"),
        (f'{TOKEN}\ntoken_scheme = "Two words"', "credentials.token_scheme", "must be one word, such as Bearer"),
        (f'{TOKEN}\nscope = "x"', "credentials.scope", "is for token_url"),
        ('token_url = "http://aai.example.org/"', "credentials.token_url", "must begin with https://"),
    ],
)
def test_what_is_wrong_with_a_token_is_reported(tmp_path: Path, credentials: str, key: str, reported: str) -> None:
    error = refused(tmp_path, f'[site]\nname = "A"\n[credentials]\n{credentials}\n')
    assert error.key == key
    assert reported in str(error)


def _https(name: str, host: str, own: str = "") -> str:
    return f'[targets.{name}]\ntype = "https"\nurl = "https://{host}/"\n{own}\n'


def test_a_common_token_is_for_one_host(tmp_path: Path) -> None:
    site = f'[site]\nname = "A"\n[credentials]\n{TOKEN}\n'
    assert load(tmp_path, site + _https("x", "a.example.org") + _https("y", "a.example.org")).credentials.has_token
    error = refused(tmp_path, site + _https("x", "a.example.org") + _https("y", "b.example.org"))
    assert error.key == "credentials"
    assert "would be sent to a.example.org (targets.x) and b.example.org (targets.y)" in str(error)
    own = _https("y", "b.example.org", 'token_file = "other"')
    config = load(tmp_path, site + _https("x", "a.example.org") + own)
    assert config.credentials_of(config.targets["x"]).token_file == tmp_path / "t"
    assert config.credentials_of(config.targets["y"]).token_file == tmp_path / "other"


def test_a_target_that_sends_no_token_has_none(tmp_path: Path) -> None:
    sgas = f'[targets.x]\ntype = "sgas"\nurl = "https://a.example.org/"\n[targets.x.credentials]\n{TOKEN}\n'
    error = refused(tmp_path, f'[site]\nname = "A"\n{sgas}')
    assert (error.key, "send no token" in str(error)) == ("targets.x.credentials", True)
    twice = _https("x", "a.example.org", TOKEN) + f"[targets.x.credentials]\n{TOKEN}\n"
    error = refused(tmp_path, f'[site]\nname = "A"\n{twice}')
    assert (error.key, "has a token too" in str(error)) == ("targets.x.token_file", True)


def priced(*prices: str) -> str:
    return GOOD + "".join(f'[[charges.prices]]\nresource = "cores"\nprice = 1\n{price}\n' for price in prices)


@pytest.mark.parametrize(
    ("prices", "problem"),
    [
        (("", 'queue = "fat"'), "prices[1] never applies: prices[0] is before it, and applies wherever it does"),
        (('queue = "fat"', 'queue = "fat"\nhours = "22-06"'), "prices[1] never applies"),
        (('hours = "22-06"', "", 'type = "gpu"'), "prices[2] never applies: prices[1]"),
        (('hours = "20-07"', 'hours = "22-06"'), "prices[1] never applies: prices[0]"),
        (('hours = "22-06"', 'hours = "05:59-22"'), "prices[0] (22-06) and prices[1] (05:59-22) overlap"),
    ],
)
def test_prices_whose_hours_overlap_are_reported(tmp_path: Path, prices: tuple[str, ...], problem: str) -> None:
    error = str(refused(tmp_path, priced(*prices)))
    assert "charges.prices" in error
    assert problem in error


def test_prices_that_follow_each_other_are_right(tmp_path: Path) -> None:
    hours = ('hours = "12-13"', 'hours = "22-06"', 'hours = "06-22"')
    load(tmp_path, priced('queue = "fat"\nhours = "22-06"', 'queue = "f*"', 'cluster = "a"\ntype = "gpu"', *hours, ""))
