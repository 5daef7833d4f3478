"""What the figures of a page come to, in a few sentences: who is ahead, by how much, and what that is worth.

Nothing is computed here that the page does not show.
"""

from collections.abc import Sequence
from itertools import pairwise

from s6mod.decimals import decimal, difference
from s6mod.methods import methods
from s6mod.paper.estimate import ENOUGH, LAGS, WORTH, Estimate
from s6mod.paper.render import MARKS
from s6mod.report.groups import Group

PLUG_INS = {
    "s6mod": "The S6MOD branch.",
    "confidence": "A penalty on confident predictions, a control.",
    "smoothing": "Label smoothing, a control.",
    "mkd": "A teacher, an averaged copy of the network.",
}
NEAREST = 1.0  # points by which nearest means must be ahead to be worth a word


def conclusion(groups: Sequence[Group]) -> list[str]:
    """The sentences on groups that share a setting, the most accurate first; each has a finished run."""
    ranked = sorted(groups, key=lambda group: -_mean(group))
    sentences = [_ahead(ranked)]
    sentences += [_lead(best, second) for best, second in pairwise(ranked[:2])]
    apart = [max(values) - min(values) for group in groups if len(values := [*group.values("accuracy").values()]) > 1]
    if apart:
        sentences.append(f"Seeds of one learner lie up to {decimal(max(apart), 1)} points apart here.")
    if any(len(group.finished) < ENOUGH for group in groups):
        sentences.append(WORTH)
    return sentences


def names(groups: Sequence[Group]) -> str:
    """What the learners' names stand for; parts that say nothing of themselves are left out."""
    configs = [group.example.config for group in groups]
    known = methods.registered(outside=False) | methods.registered(outside=True)
    told = {name: known[name].__doc__ or "" for config in configs if (name := config["method"]["name"]) in known}
    plug_ins = [part["name"] for config in configs for part in (config["branch"], config["teacher"]) if part]
    told |= {f"+{name}": PLUG_INS.get(name, "") for name in plug_ins}
    return " ".join(f"{name}: {text.strip().splitlines()[0]}" for name, text in told.items() if text.strip())


def nearest_means(groups: Sequence[Group]) -> str:
    """The note on learners whose nearest class means beat what predicts; empty if there are none."""
    ahead = []
    for group in groups:
        means, chosen = group.estimate("accuracy", "ncm"), group.estimate("accuracy")
        if means is not None and chosen is not None and means.mean >= chosen.mean + NEAREST:
            ahead.append(
                f"{group.label} {decimal(means.mean, 1)} % by them, {decimal(chosen.mean, 1)} % as it predicts"
            )
    if not ahead:
        return ""
    return (
        f"Nearest class means of the memory's features (ncm) are better than what predicts: {'; '.join(ahead)}. "
        "--set predict_by=ncm predicts by them."
    )


def lagging(groups: Sequence[Group]) -> str:
    """The note on learners that seem not to learn a task although their features do; empty if there are none."""
    behind = []
    for group in groups:
        means, chosen = group.estimate("learning_accuracy", "ncm"), group.estimate("learning_accuracy")
        by_averages = group.example.config["statistics"] == "running"
        if by_averages and means is not None and chosen is not None and means.mean >= chosen.mean + LAGS:
            behind.append(f"{group.label} {decimal(chosen.mean, 0)} % (by nearest means {decimal(means.mean, 0)} %)")
    if not behind:
        return ""
    return (
        f"Just after learning a task: {'; '.join(behind)}. The features are there, the head does not meet them: "
        "BatchNorm predicts by running averages of past batches, which lag behind a network that changes this fast. "
        "--set statistics=memory measures them on the memory's images instead."
    )


def beyond_chance(gain: Estimate) -> bool | None:
    """Whether a difference is more than chance gives; None: too few seeds to say so."""
    return None if gain.half is None or gain.n < ENOUGH else abs(gain.mean) > gain.half


def _mean(group: Group) -> float:
    estimate = group.estimate("accuracy")
    assert estimate is not None
    return estimate.mean


def _ahead(ranked: Sequence[Group]) -> str:
    """``er+s6mod is ahead with 83.21 %; then er with 78.40 % (3 seeds each).``"""
    seeds = [len(group.values("accuracy")) for group in ranked]
    alike = len(ranked) > 1 and len({*seeds}) == 1
    told = [
        f"{decimal(_mean(group))} %" + ("" if alike else f" ({_seeds(n)})")
        for group, n in zip(ranked, seeds, strict=True)
    ]
    if len(ranked) == 1:
        return f"{ranked[0].label} ends with {told[0]}."
    others = ", ".join(f"{group.label} with {text}" for group, text in zip(ranked[1:4], told[1:4], strict=True))
    more = f" and {len(ranked) - 4} more" if len(ranked) > 4 else ""
    each = f" ({_seeds(seeds[0])} each)" if alike else ""
    return f"{ranked[0].label} is ahead with {told[0]}; then {others}{more}{each}."


def _lead(best: Group, second: Group) -> str:
    gain = best.gain(second, "accuracy")
    if gain is None:
        return f"No seed is shared by {best.label} and {second.label}, so their difference is not paired."
    beyond = beyond_chance(gain)
    worth = "more than chance gives" if beyond else "too few to tell" if beyond is None else "not beyond chance"
    apart = difference(gain.mean, gain.half, " ")
    versions = " The two come from different versions of the code." if best.sides(second) in MARKS else ""
    return f"The lead over {second.label}, paired by seed, is {apart} points ({_seeds(gain.n)}): {worth}.{versions}"


def _seeds(n: int) -> str:
    return f"{n} seed" if n == 1 else f"{n} seeds"
