"""What a branch brings to a strategy of Avalanche: its Replay on its class-incremental benchmark, made of digits.

    python benchmarks/avalanche_plugin.py [SEEDS]

Five experiences of two classes in the seed's order, three epochs each, batches of ten and as many replayed, a memory of
200 images, Adam with its defaults. Branches have their default weights; S6MOD also stands without L_Cont, as in the
presets of ER. Nothing was tuned here. Needs the extra avalanche.
"""

import statistics
import sys
from collections import OrderedDict

import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.evaluation.metrics import accuracy_metrics
from avalanche.training.plugins import EvaluationPlugin
from avalanche.training.supervised import Replay
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from s6mod.interfaces.avalanche import BranchPlugin

BRANCHES = {
    "nothing": None,
    "confidence": "confidence",
    "smoothing": "smoothing",
    "s6mod": "s6mod",
    "s6mod, beta 0": {"name": "s6mod", "beta": 0.0},
}


def network():
    convolutions = [
        layer
        for wide, out, stride in ((1, 32, 1), (32, 64, 2))
        for layer in (nn.Conv2d(wide, out, 3, stride, 1), nn.BatchNorm2d(out), nn.ReLU())
    ]
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(OrderedDict(backbone=nn.Sequential(*convolutions), head=head))


def benchmark(seed):
    digits = load_digits()
    x, y = torch.tensor(digits.images[:, None] / 16, dtype=torch.float32), torch.tensor(digits.target)
    test = torch.arange(len(y)) % 5 == 4
    parts = [TensorDataset(x[part], y[part]) for part in (~test, test)]
    for part in parts:
        part.targets = part.tensors[1]
    return nc_benchmark(*parts, n_experiences=5, task_labels=False, seed=seed)


def accuracy(branch, seed):
    """On all test images at the end, in percent."""
    torch.manual_seed(seed)
    model = network()
    strategy = Replay(
        model=model,
        optimizer=torch.optim.Adam(model.parameters()),
        criterion=nn.CrossEntropyLoss(),
        mem_size=200,
        train_mb_size=10,
        train_epochs=3,
        plugins=[] if branch is None else [BranchPlugin("backbone", branch, seed)],
        evaluator=EvaluationPlugin(accuracy_metrics(stream=True)),
    )
    stream = benchmark(seed)
    for experience in stream.train_stream:
        torch.manual_seed(seed)
        strategy.train(experience)
    return 100 * strategy.eval(stream.test_stream)["Top1_Acc_Stream/eval_phase/test_stream/Task000"]


def summary(found):
    return f"{statistics.mean(found):+.2f} ± {statistics.stdev(found) if len(found) > 1 else 0:.2f}"


def main():
    torch.set_num_threads(1)
    first, _, last = (sys.argv[1] if len(sys.argv) > 1 else "0-4").partition("-")
    alone = []
    for name, branch in BRANCHES.items():
        found = [accuracy(branch, seed) for seed in range(int(first), int(last or first) + 1)]
        alone = alone or found
        gains = [share - base for share, base in zip(found, alone, strict=True)]
        shown = " ".join(f"{share:.1f}" for share in found)
        print(f"Replay + {name}: {summary(found)[1:]} ({shown}), over Replay alone {summary(gains)}", flush=True)


if __name__ == "__main__":
    main()
