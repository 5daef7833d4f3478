"""A CSV file of image paths and labels: columns ``path``, ``label`` and, optionally, ``split``."""

import csv
from pathlib import Path

from s6mod.data.files import Files, files_source, refuse_link
from s6mod.data.source import Source
from s6mod.data.split import Reading
from s6mod.errors import DataError

SPLIT_NAMES = {"train": False, "test": True, "val": True}


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
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            table = csv.DictReader(file)
            columns = table.fieldnames or []
            if not {"path", "label"} <= set(columns):
                raise DataError(
                    f"expected the columns path, label and perhaps split in {path}, "
                    f"got {', '.join(columns) or 'none'}; name them in the first line"
                )
            return [_row(row, f"{path} line {table.line_num}", path.parent, "split" in columns) for row in table]
    except OSError as error:
        raise DataError(f"expected a readable table {path}, got: {error.strerror}; check the path") from None
    except (UnicodeDecodeError, csv.Error):
        raise DataError(f"expected a CSV file in UTF-8, got {path}, which is not; save it as such") from None


def _row(row: dict[str, str | None], where: str, folder: Path, has_split: bool) -> tuple[Path, str, bool | None]:
    values = {column: (row.get(column) or "").strip() for column in ("path", "label", "split")}
    for column in ("path", "label"):
        if not values[column]:
            raise DataError(f"expected a {column} in {where}, got none; fill it in, or remove the line")
    file = folder / values["path"]
    refuse_link(file)
    if not file.is_file():
        raise DataError(f"expected the image {file} of {where}, got no such file; mend the path")
    if not has_split:
        return file, values["label"], None
    if values["split"] not in SPLIT_NAMES:
        raise DataError(f"expected train, test or val as split in {where}, got {values['split']!r}; mend it")
    return file, values["label"], SPLIT_NAMES[values["split"]]


def _class_names(labels: set[str]) -> tuple[str, ...]:
    """Classes in the order of their numbers if all are numbers, else of their names."""
    numbers = all(label.isdecimal() for label in labels)
    return tuple(sorted(labels, key=lambda label: (int(label), label) if numbers else (0, label)))
