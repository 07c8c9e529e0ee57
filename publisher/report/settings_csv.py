"""CSV files that settings name: carbon intensities and allocations."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Literal

from publisher.errors import ConfigError
from publisher.text import problem_text


def rows(
    path: Path, key: str, *, needed: Collection[str] = (), hint: str = "", delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """The last line of each row that is not blank, and its cells by column, without blanks around them.

    `needed`: columns of which each row must have a cell; other cells that a row does not have are empty. `hint`: what
    to do if such a column is missing. `key`: the setting that names the file. With a delimiter other than a comma,
    quotes mean nothing. Raises `ConfigError`.
    """
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter == "," else csv.QUOTE_NONE
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            # Not strict, a quote that is not closed would take all rows after it as its cell.
            reader = csv.reader(lines, delimiter=delimiter, quoting=quoting, strict=True)
            heading = [name.strip() for name in next(reader, [])]
            if missing := [name for name in needed if name not in heading]:
                raise ConfigError(f"{path} has no column {missing[0]}", key=key, hint=hint)
            if twice := [name for name in heading if name and heading.count(name) > 1]:
                raise ConfigError(f"{path} has two columns {twice[0]}", key=key)
            least = max((heading.index(name) + 1 for name in needed), default=0)
            for row in reader:
                cells = [cell.strip() for cell in row]
                if not any(cells):
                    continue
                if any(cells[len(heading) :]):  # such as of a number with a decimal comma
                    raise refused(path, reader.line_num, "it has more cells than the first line has columns", key)
                if len(cells) < least:
                    raise refused(path, reader.line_num, "it has too few cells", key)
                yield reader.line_num, dict.fromkeys(heading, "") | dict(zip(heading, cells, strict=False))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read: {problem_text(error)}", key=key) from error


def refused(path: Path, line: int, problem: str, key: str) -> ConfigError:
    """The error of a line of a file that the setting `key` names."""
    return ConfigError(f"{path}, line {line}: {problem}", key=key)
