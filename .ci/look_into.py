"""Refuse a wheel or source archive that holds what it should not, lacks what it should hold, or has grown fat."""

import sys
import tarfile
import zipfile
from pathlib import Path

MOST_BYTES = 1_000_000
NEEDED = (
    "s6mod/py.typed",
    "s6mod/report/page.css",
    "s6mod/serve/page.html",
    "s6mod/presets/datasets.yaml",
    "s6mod/paper/published.json",
)
UNWANTED = ("results/", "tests/", "benchmarks/", "docs/", "examples/", ".ci/")

for file in map(Path, sys.argv[1:]):
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    else:
        with tarfile.open(file) as archive:
            names = [name.partition("/")[2].removeprefix("src/") for name in archive.getnames()]
    size = file.stat().st_size
    print(f"{file.name}: {size / 1000:.0f} kB, {len(names)} files")
    wrong = [name for name in names if name.startswith(UNWANTED)]
    missing = [name for name in NEEDED if name not in names]
    if wrong or missing or size > MOST_BYTES:
        sys.exit(
            f"expected the package alone below {MOST_BYTES} bytes, got {size} with {wrong[:5]} and without {missing}"
        )
