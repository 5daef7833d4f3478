"""What runs have recorded."""

import json

from s6mod.trackers.mirrors import numbers


def records_of(folder):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def numbers_by_step(folder):
    """All numbers of the records, as a tracker is to show them."""
    steps = {}
    for record in records_of(folder):
        steps.setdefault(record["step"], {}).update(numbers(record))
    return steps
