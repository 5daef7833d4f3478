"""Parts of stored runs that nobody here knows: methods or plug-ins of somebody's own, whose file was not named."""

from collections import Counter
from collections.abc import Iterable

from s6mod.runs.completion import complete
from s6mod.runs.name import PARTS
from s6mod.runs.store import StoredRun


def strangers(runs: Iterable[StoredRun]) -> list[str]:
    """A sentence for each of them: without its defaults, all its options look like changes."""
    named: Counter[tuple[str, str]] = Counter()
    for run in runs:
        for part in PARTS:
            if run.config.get(part):
                named[part, str(run.config[part]["name"])] += 1
    return [
        f"expected a known {part}, got {name!r} in {count} run{'s' * (count != 1)}, whose options are therefore all "
        "listed; give its file to --import"
        for (part, name), count in named.items()
        if complete({part: {"name": name}})[part] == {"name": name}
    ]
