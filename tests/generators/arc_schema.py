"""The tables and indexes of ARC's accounting database, schema version 1 (the facts on ARC)."""

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
