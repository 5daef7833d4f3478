"""Says once when nearest means are far better than what predicts: on a short stream a head may have learned nothing.

A look costs a pass over the memory, so there is one at the first evaluation and then whenever the number of batches
learned has doubled since the last: it is never a large part of what was computed.
"""

import warnings

from torch import Tensor

NCM = "ncm"
FAR = 10  # points that nearest means are ahead
FEWEST = 5  # images that they are ahead by, as a point may be less than one


class Advice:
    """What a learner may have to say about its predictions."""

    def __init__(self) -> None:
        self.next_look: float = 1  # batches learned

    def due(self, steps: int) -> bool:
        """Whether to look, after so many batches; a look is then taken."""
        if steps < self.next_look:
            return False
        self.next_look = 2 * steps
        return True

    def look(self, tables: dict[str, Tensor], primary: str, labels: Tensor) -> None:
        """Warn if nearest means are far ahead on images with these labels, and never again."""
        hits = {name: int((tables[name].argmax(1).cpu() == labels).sum()) for name in (primary, NCM)}
        ahead = hits[NCM] - hits[primary]
        if ahead < FEWEST or 100 * ahead < FAR * len(labels):
            return
        self.next_look = float("inf")
        ours, theirs = (100 * hits[name] / len(labels) for name in (primary, NCM))
        warnings.warn(
            f"of these images {primary!r}, which predicts, has {ours:.0f} % right, nearest means have {theirs:.0f} %; "
            "give predict_by='ncm' or statistics='memory' to the learner, or more updates for each batch",
            stacklevel=3,
        )
