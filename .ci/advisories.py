"""Compare our dependencies with a snapshot of advisories, where pip-audit reaches no database.

It looks at three things: the versions in constraints.txt, the lowest versions in pyproject.toml, and what is installed
beside the interpreter that runs this. The snapshot is JSON in the form of Safety's database: for each package a list of
rows, each with an `id`, an `advisory` and the versions concerned, as `specs` or `v`. Exit code 1: a version that is
pinned or installed is concerned.
"""

import json
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def versions(requirements: Iterable[str], operator: str) -> dict[str, str]:
    """Names and versions of the requirements that have one with this operator."""
    read = map(Requirement, requirements)
    return {wanted.name: part.version for wanted in read for part in wanted.specifier if part.operator == operator}


pinned = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
asked = sum(project["optional-dependencies"].values(), project["dependencies"])
looked_at = {
    "pinned": versions(pinned, "=="),
    "lowest": versions(asked, ">="),
    "installed": {found.name: found.version for found in distributions()},
}
[snapshot] = sys.argv[1:]
rows = {canonicalize_name(name): listed for name, listed in json.loads(Path(snapshot).read_text()).items()}
concerned = 0
for kind, named in looked_at.items():
    known = {name: version for name, version in named.items() if canonicalize_name(name) in rows}
    compared = sum(len(rows[canonicalize_name(name)]) for name in known)
    print(f"{kind}: {len(named)} packages, {len(known)} of them in the snapshot with {compared} advisories")
    for name, version in sorted(known.items()):
        for row in rows[canonicalize_name(name)]:
            ranges = row.get("specs") or [row["v"]]
            if any(SpecifierSet(one).contains(version, prereleases=True) for one in ranges):
                concerned += kind != "lowest"
                print(f"  {name} {version}: {row['id']} ({' or '.join(ranges)}) {row['advisory'].splitlines()[0][:90]}")
sys.exit(bool(concerned))
