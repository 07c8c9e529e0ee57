"""A statement is run only if it is one SELECT of our tables: nothing else of this host can be read or written."""

from __future__ import annotations

import pytest

from publisher.errors import UsageError
from publisher.report.one_select import tables_read

TABLES = ("runs", "nodes", "deliveries")


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "FROM runs",
        "TABLE runs",
        "VALUES (1)",
        "select user_name, sum(core_s) from runs group by all order by 2 desc limit 3",
        "with x as (select * from runs) select count(*) from x join nodes n on true",
        "select * from unnest([1,2])",
        "select * from range(3), runs",
        "with recursive r(i) as (select 1 union all select i+1 from r where i<5) select * from r",
        "select (select max(jobs) from (select count(*) jobs from Runs)) , exists(select 1 from nodes)",
        "select date_trunc('month', ended_at), median(wait_s) from runs group by 1",
        "select count(*) filter (wall_s > 3), list(user_name), quantile_cont(wall_s, 0.9) over () from runs",
        "select regexp_matches(user_name,'a') from runs union select true",
        "SELECT COLUMNS('.*_s') FROM runs",
        "select version_x from runs",
        "select * from runs qualify row_number() over () = 1",
        "select * from runs using sample 10",
        "select user_name like 'a%' from runs where ended_at between date '2026-01-01' and now()",
    ],
)
def test_a_select_of_the_tables(statement: str) -> None:
    assert tables_read(statement, TABLES) <= {*TABLES}


@pytest.mark.parametrize(
    "statement",
    [
        "",
        "select 1; select 2",
        "COPY runs TO '/tmp/x'",
        "COPY (select 1) TO '/tmp/x'",
        "ATTACH '/etc/x'",
        "PRAGMA database_list",
        "SET memory_limit='1TB'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE TABLE x AS SELECT 1",
        "INSERT INTO runs VALUES (1)",
        "DELETE FROM runs",
        "UPDATE runs SET a=1",
        "DROP VIEW runs",
        "EXPORT DATABASE 'x'",
        "CALL pragma_version()",
        "EXPLAIN ANALYZE SELECT 1",
        "DESCRIBE runs",
        "SUMMARIZE runs",
        "SHOW TABLES",
        "SELECT * FROM 'x.csv'",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_parquet('*')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM read_blob('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM sniff_csv('x')",
        "SELECT getenv('HOME')",
        "SELECT current_setting('temp_directory')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM duckdb_settings",
        "SELECT * FROM information_schema.tables",
        "SELECT * FROM pg_catalog.pg_class",
        "SELECT * FROM query('select 1')",
        "SELECT * FROM query_table('runs')",
        "SELECT * FROM entries",
        "SELECT * FROM main.entries",
        "SELECT * FROM temp.matching",
        "SELECT * FROM arrow_scan(1::POINTER,2::POINTER,3::POINTER)",
        "SELECT 1::POINTER",
        "SELECT (SELECT content FROM read_text('/etc/passwd'))",
        "WITH x AS (SELECT * FROM read_csv('/etc/passwd')) SELECT 1",
        'WITH "/etc/passwd" AS (SELECT 1) SELECT * FROM "/etc/passwd"',
        "WITH runs AS (SELECT 1) SELECT * FROM runs",
        "SELECT * FROM (SHOW TABLES)",
        "SELECT * FROM (DESCRIBE runs)",
        "select * from (summarize runs)",
        "SELECT count(*) FROM runs WHERE EXISTS (FROM glob('/*'))",
        "SELECT * FROM runs ORDER BY (SELECT max(x) FROM read_csv('y') t(x))",
        "SELECT * FROM https",
        "SELECT * FROM 'https://example.org/x.parquet'",
        "select write_log('x')",
        "select * from json_execute_serialized_sql('x')",
        "SELECT * FROM runs AT (VERSION => 1)",
        "PREPARE x AS SELECT 1",
        "EXECUTE x",
        "BEGIN",
        "VACUUM",
        "CHECKPOINT",
        "USE memory",
        "DETACH memory",
        "SELECT list_transform([1], x -> getenv('HOME'))",
        "SELECT [getenv('H') for x in [1]]",
        "select * from runs limit (select getenv('x'))",
        "select 1 /* ; */; --\n drop table x",
        "pivot runs on queue using count(*)",
        "\ud800",
        "select 'a' || chr(0) from \x00runs",
        'select * from "runs"""',
        "select nextval('x')",
        "select * from seq_scan('x')",
        'select * from "C:\\x.csv"',
        "select * from unnest((select list(content) from read_text('/etc/passwd')))",
        "from runs select * where getvariable('a')",
        "select * from csv.runs",
        "select pg_catalog.getenv('x')",
        "select system.main.getenv('x')",
    ],
)
def test_whatever_else_is_refused(statement: str) -> None:
    with pytest.raises(UsageError, match="the statement was refused"):
        tables_read(statement, TABLES)


def test_a_statement_of_any_depth_and_length_is_an_answer() -> None:
    assert tables_read("(" * 5000 + "SELECT 1" + ")" * 5000, TABLES) == set()
    with pytest.raises(UsageError, match="100,000 characters"):
        tables_read("SELECT " + "1," * 60_000 + "1", TABLES)
    with pytest.raises(UsageError, match="refused"):
        tables_read("SELECT " + "+".join("1" * 40_000), TABLES)


def test_the_tables_that_are_read() -> None:
    assert tables_read("WITH x AS (SELECT * FROM Runs) SELECT * FROM x, nodes", TABLES) == {"runs", "nodes"}
