"""A measurement in a separate process: `python -m tests.bench.child MODULE FUNCTION INPUTS SIZE VARIANT`; prints
JSON."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import tempfile
from pathlib import Path

from tests.bench.measure import Bench, median


def main(module: str, function: str, inputs: str, size: str, variant: str) -> None:
    """Measure, and print the median run."""
    with tempfile.TemporaryDirectory(prefix="usage-publisher-bench-") as folder:
        bench = Bench(Path(inputs).absolute(), Path(folder), int(size), variant=variant)
        getattr(importlib.import_module(module), function)(bench)
    print(json.dumps(dataclasses.asdict(median(bench.runs))))


if __name__ == "__main__":
    main(*sys.argv[1:])
