"""What a step of each learner costs beside a step of ER: python benchmarks/step_costs.py [CELL...] [--json FILE]

Cells as in a sweep, with the settings of CIFAR-100 and M = 2000 where a cell names no data set. Steps are of the second
task, captured on a GPU, alone on the device. Times are medians of five stretches; ratios are to ER in the same run.
"""

import argparse
import json
from statistics import median

import torch

from s6mod import Learner
from s6mod.learner import LearnerConfig
from s6mod.runs.bench import seconds_per_step, stream_batches
from s6mod.runs.cells import parse
from s6mod.runs.config import RunConfig

FIELD = "er-ace der der++ pcr agem scr mir er-lwf"
STRONGEST = "er/average=0.99 er+mkd swift pcr/average=0.99 pcr+mkd mose mose/average=0.99 mose+mkd best er+s6mod"
STRETCHES = 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", default=f"{FIELD} {STRONGEST}".split())
    parser.add_argument("--steps", type=int, default=40, help="of a stretch")
    parser.add_argument("--width", type=int, help="of the network; default: the preset's")
    parser.add_argument("--json", help="also write the figures here")
    given = parser.parse_args()
    rows = {}
    for cell in dict.fromkeys(["er", *given.cells]):
        rows[cell] = milliseconds(cell, given.steps, given.width)
        print(f"{cell:24} {rows[cell]:8.2f} ms {rows[cell] / rows['er']:6.2f} x ER", flush=True)
    if given.json:
        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
        facts = {"device": device, "torch": torch.__version__, "ms_per_step": rows}
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(facts, file, indent=1)


def milliseconds(cell, steps, width):
    learner = second_task(cell, width)
    seconds_per_step(learner, 16)  # captures what is captured
    return 1000 * median(seconds_per_step(learner, steps) for _ in range(STRETCHES))


def second_task(cell, width):
    """A learner of the cell in its second task, its memory half full."""
    plain = RunConfig.parse(parse(cell, "cifar100", 2000).values()).plain()
    given = {name: plain[name] for name in LearnerConfig.model_fields if name in plain} | {"num_classes": 100}
    if width:
        given["method"]["network"]["width"] = width
    learner = Learner.from_config(LearnerConfig.parse(given))
    for x, y in stream_batches(100, task=0):
        learner.learn(x, y)
    learner.end_task()
    return learner


if __name__ == "__main__":
    main()
