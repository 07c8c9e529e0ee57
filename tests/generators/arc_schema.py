"""The tables and indexes of ARC's accounting database, schema version 1 (the facts on ARC), and what 2 changes."""

from __future__ import annotations

from typing import Final

_NAMED: Final = ("Queues", "Users", "WLCGVOs", "Status")
_COUNTED: Final = [
    *("ExitCode", "SubmitTime", "EndTime", "NodeCount", "CPUCount", "UsedMemory", "UsedVirtMem", "UsedWalltime"),
    *("UsedCPUUserTime", "UsedCPUKernelTime", "UsedScratch", "StageInVolume", "StageOutVolume"),
]
_SIDES: Final = {
    "AuthTokenAttributes": ("AttrKey TEXT NOT NULL, AttrValue TEXT", "AttrKey"),
    "JobEvents": ("EventKey TEXT NOT NULL, EventTime TEXT NOT NULL", "EventKey"),
    "RunTimeEnvironments": ("RTEName TEXT NOT NULL", "RTEName"),
    "DataTransfers": (
        (
            "URL TEXT NOT NULL, FileSize INTEGER NOT NULL, TransferStart INTEGER NOT NULL, "
            "TransferEnd INTEGER NOT NULL, TransferType INTEGER NOT NULL"
        ),
        "URL",
    ),
    "JobExtraInfo": ("InfoKey TEXT NOT NULL, InfoValue TEXT", "InfoKey"),
}

_AAR: Final = (
    "CREATE TABLE AAR (RecordID INTEGER PRIMARY KEY AUTOINCREMENT, JobID TEXT NOT NULL UNIQUE, LocalJobID TEXT, "
    "EndpointID INTEGER NOT NULL REFERENCES Endpoints(ID), QueueID INTEGER NOT NULL REFERENCES Queues(ID), "
    "UserID INTEGER NOT NULL REFERENCES Users(ID), VOID INTEGER NOT NULL REFERENCES WLCGVOs(ID), "
    "StatusID INTEGER NOT NULL REFERENCES Status(ID), "
    + ", ".join(f"{name} INTEGER NOT NULL" for name in _COUNTED)
    + ")"
)

TABLES: Final = [
    "CREATE TABLE Endpoints (ID INTEGER PRIMARY KEY AUTOINCREMENT, Interface TEXT NOT NULL, URL TEXT NOT NULL)",
    *(f"CREATE TABLE {name} (ID INTEGER PRIMARY KEY AUTOINCREMENT, Name TEXT NOT NULL UNIQUE)" for name in _NAMED),
    _AAR,
    *(
        f"CREATE TABLE {name} (RecordID INTEGER NOT NULL REFERENCES AAR(RecordID), {columns})"
        for name, (columns, _) in _SIDES.items()
    ),
    "CREATE TABLE DBConfig (KeyName TEXT PRIMARY KEY, KeyValue TEXT NOT NULL)",
]

INDEXES: Final = [
    "CREATE UNIQUE INDEX AAR_JobID_IDX ON AAR(JobID)",
    *(
        f"CREATE INDEX AAR_{name}_IDX ON AAR({name})"
        for name in ("LocalJobID", "EndpointID", "QueueID", "UserID", "StatusID", "SubmitTime", "EndTime")
    ),
    "CREATE INDEX Endpoints_Interface_IDX ON Endpoints(Interface)",
    *(f"CREATE UNIQUE INDEX {name}_Name_IDX ON {name}(Name)" for name in _NAMED),
    *(
        f"CREATE INDEX {name}_{column}_IDX ON {name}({column})"
        for name, (_, key) in _SIDES.items()
        for column in ("RecordID", key)
    ),
]

VERSION_2: Final = [
    "CREATE TABLE FQANs (ID INTEGER PRIMARY KEY AUTOINCREMENT, Name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE Benchmarks (ID INTEGER PRIMARY KEY AUTOINCREMENT, Name TEXT NOT NULL UNIQUE)",
    "INSERT INTO FQANs (Name) VALUES ('')",
    "INSERT INTO Benchmarks (Name) VALUES ('')",
    "INSERT OR IGNORE INTO FQANs (Name) SELECT AttrValue FROM AuthTokenAttributes WHERE AttrKey = 'mainfqan'",
    "INSERT OR IGNORE INTO Benchmarks (Name) SELECT InfoValue FROM JobExtraInfo WHERE InfoKey = 'benchmark'",
    "ALTER TABLE AAR ADD COLUMN FQANID INTEGER NOT NULL DEFAULT 1",
    "ALTER TABLE AAR ADD COLUMN BenchmarkID INTEGER NOT NULL DEFAULT 1",
    (
        "UPDATE AAR SET FQANID = coalesce((SELECT ID FROM FQANs JOIN AuthTokenAttributes a ON AttrValue = Name "
        "WHERE a.RecordID = AAR.RecordID AND AttrKey = 'mainfqan' ORDER BY a.rowid LIMIT 1), 1)"
    ),
    (
        "UPDATE AAR SET BenchmarkID = coalesce((SELECT ID FROM Benchmarks JOIN JobExtraInfo i ON InfoValue = Name "
        "WHERE i.RecordID = AAR.RecordID AND InfoKey = 'benchmark' ORDER BY i.rowid LIMIT 1), 1)"
    ),
    "DROP INDEX AuthTokenAttributes_AttrKey_IDX",
    "DROP INDEX JobEvents_EventKey_IDX",
    "DROP INDEX RunTimeEnvironments_RTEName_IDX",
    "DROP INDEX DataTransfers_URL_IDX",
    "DROP INDEX JobExtraInfo_InfoKey_IDX",
    "CREATE INDEX AuthTokenAttributes_RecordID_AttrKey_IDX ON AuthTokenAttributes(RecordID, AttrKey)",
    "CREATE INDEX RunTimeEnvironments_RecordID_RTEName_IDX ON RunTimeEnvironments(RecordID, RTEName)",
    "CREATE INDEX DataTransfers_RecordID_URL_IDX ON DataTransfers(RecordID, URL)",
    "CREATE INDEX JobExtraInfo_RecordID_InfoKey_IDX ON JobExtraInfo(RecordID, InfoKey)",
    "UPDATE DBConfig SET KeyValue = '2' WHERE KeyName = 'DBSCHEMA_VERSION'",
]
"""Makes a database of version 1 one of version 2, with the rows that a migration copies."""

WRITTEN_BY_7: Final = [
    "DELETE FROM JobExtraInfo WHERE InfoKey = 'benchmark'",
    "UPDATE AuthTokenAttributes SET AttrKey = 'vomsfqan' WHERE AttrKey = 'mainfqan'",
]
"""Then makes its rows those that ARC 7 itself writes."""
