"""A CSV file of image paths and labels: columns ``path``, ``label`` and, optionally, ``split``."""

import csv
import os
import re
from decimal import Decimal
from pathlib import Path

from s6mod.data.files import Files, files_source, refuse_link
from s6mod.data.source import Source
from s6mod.data.split import Reading
from s6mod.errors import DataError

SPLIT_NAMES = {"train": False, "test": True, "val": True}
NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
REST = ","  # the key of what stands beyond the last column


def csv_source(path: Path, name: str, reading: Reading) -> Source:
    """A source of the images a table lists; paths are relative to it, labels are class names or numbers."""
    rows = _read(path)
    if not rows:
        raise DataError(f"expected rows of images in {path}, got none; add some below the first line")
    class_names = _class_names({label for _, label, _ in rows})
    label_of = {name: number for number, name in enumerate(class_names)}
    files: dict[bool | None, Files] = {False: [], True: [], None: []}
    for file, label, is_test in rows:
        files[is_test].append((file, label_of[label]))
    if files[None]:  # no column says which split
        return files_source(name, class_names, files[None], None, reading, f"table {path.name}")
    for split, is_test in (("train", False), ("test", True)):
        if not files[is_test]:
            raise DataError(f"expected rows of split {split!r} in {path}, got none; add some, or drop the column")
    return files_source(name, class_names, files[False], files[True], reading, f"table {path.name}")


def _read(path: Path) -> list[tuple[Path, str, bool | None]]:
    """Path, label and whether it is a test image, of each row."""
    rows, seen = [], set()
    try:
        with path.open(newline="", encoding="utf-8-sig") as opened:
            table = csv.DictReader(opened, restkey=REST)
            columns = list(table.fieldnames or [])
            _check_columns(columns, path)
            for row in table:
                where = f"{path} line {table.line_num}"
                if any(row.pop(REST, ())):
                    raise DataError(f"expected {len(columns)} columns in {where}, got more; quote what holds a comma")
                file, label, is_test = _row(row, where, path.parent, "split" in columns)
                if (name := os.path.normpath(file)) in seen:  # it might be trained and tested on, or have two labels
                    raise DataError(f"expected each image once, got {file} again in {where}; remove one of the lines")
                seen.add(name)
                rows.append((file, label, is_test))
    except OSError as error:
        raise DataError(f"expected a readable table {path}, got: {error.strerror}; check the path") from None
    except (UnicodeDecodeError, csv.Error):
        raise DataError(f"expected a CSV file in UTF-8, got {path}, which is not; save it as such") from None
    return rows


def _check_columns(columns: list[str], path: Path) -> None:
    if not {"path", "label"} <= set(columns):
        raise DataError(
            f"expected the columns path, label and perhaps split in {path}, "
            f"got {', '.join(columns) or 'none'}; name them in the first line"
        )
    for column in ("path", "label", "split"):
        if (count := columns.count(column)) > 1:
            raise DataError(f"expected the column {column} once in {path}, got it {count} times; rename one")


def _row(row: dict[str, str | None], where: str, folder: Path, has_split: bool) -> tuple[Path, str, bool | None]:
    values = {column: (row.get(column) or "").strip() for column in ("path", "label", "split")}
    for column in ("path", "label"):
        if not values[column]:
            raise DataError(f"expected a {column} in {where}, got none; fill it in, or remove the line")
    file = folder / values["path"]
    try:
        refuse_link(file)
        there = file.is_file()
    except OSError:  # a name that is too long for any file
        there = False
    if not there:
        raise DataError(f"expected the image {file} of {where}, got no such file; mend the path")
    if not has_split:
        return file, values["label"], None
    if values["split"] not in SPLIT_NAMES:
        raise DataError(f"expected train, test or val as split in {where}, got {values['split']!r}; mend it")
    return file, values["label"], SPLIT_NAMES[values["split"]]


def _class_names(labels: set[str]) -> tuple[str, ...]:
    """Classes in the order of their numbers if all are numbers, else of their names."""
    numbers = all(NUMBER.fullmatch(label) for label in labels)
    return tuple(sorted(labels, key=lambda label: (Decimal(label) if numbers else 0, label)))
