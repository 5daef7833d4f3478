"""Write results/commits.json, which commit has the source of which records: python benchmarks/commits.py"""

import json
import sys
from collections import Counter
from pathlib import Path

from s6mod.files import write_whole
from s6mod.runs.commits import FILE, commits

RESULTS = Path(__file__).parents[1] / "results"


def digests():
    """How many records, of runs and of benchmarks, name which source."""
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in RESULTS.rglob("*.json")]
    return Counter(content["environment"]["source"] for content in contents if "environment" in content)


def main():
    known = commits()
    if not known:
        sys.exit("expected a checkout with its history, got none; run this where git can read it")
    found = dict(sorted(digests().items()))
    content = {
        "commits": {digest: known[digest]._asdict() for digest in found if digest in known},
        "unknown": {digest: number for digest, number in found.items() if digest not in known},
    }
    write_whole(RESULTS / FILE, json.dumps(content, indent=1) + "\n")
    print(f"{sum(content['unknown'].values())} of {sum(found.values())} records name a source that no commit has")


if __name__ == "__main__":
    main()
