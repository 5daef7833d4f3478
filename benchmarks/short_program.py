"""The shortest program of three libraries on the same work.

    python benchmarks/short_program.py LIBRARY SEEDS [NETWORK [STEPS]]

LIBRARY is s6mod, s6mod_told (the number of classes), s6mod_plain (not augmented, as the others), avalanche, which
holds a whole task and takes its steps in passes over it, avalanche_online, which is given batch after batch as we are,
or capymoa. Each needs an environment of its own (docs/explanation/defaults.md).

The work: digits of scikit-learn, five tasks of two classes in the seed's order, one pass, batches of ten, a memory of
1000 images. NETWORK is mlp, the one that the library's own examples have, or resnet, the network of s6mod's preset;
s6mod has only that. STEPS are those of the others for each batch: 1, as in their examples, or more, Avalanche's then
with 64 replayed images. Seeds below 100 are judged by test images, others by training images that are held out.
"""

import statistics
import sys
import time

import numpy as np
import torch

MEMORY, BATCH, TASKS = 1000, 10, 5


def s6mod(tasks, test, network, steps, **options):
    from s6mod import Learner

    learner = Learner.preset("everyday", seed=torch.initial_seed(), **options)  # as Learner(seed=...) has it
    for x, y in tasks:
        for batch in torch.arange(len(y)).split(BATCH):
            learner.learn(x[batch], y[batch])
    x, y = (torch.cat(parts) for parts in zip(*test, strict=True))
    return learner.evaluate(x, y)


def s6mod_told(*work):
    return s6mod(*work, num_classes=10)


def s6mod_plain(*work):
    return s6mod(*work, method={"augment": "none"})


def avalanche(tasks, test, network, steps):
    from avalanche.training.supervised import Naive

    return of_avalanche(tasks, test, network, steps, Naive, train_epochs=steps)


def avalanche_online(tasks, test, network, steps):
    from avalanche.training.supervised import OnlineNaive

    return of_avalanche(tasks, test, network, steps, OnlineNaive, train_passes=steps)


def of_avalanche(tasks, test, network, steps, strategy, **passes):
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.benchmarks.scenarios import split_online_stream
    from avalanche.models import SimpleMLP
    from avalanche.training.plugins import ReplayPlugin
    from torch.nn import CrossEntropyLoss
    from torch.optim import Adam

    benchmark = tensors_benchmark(train_tensors=tasks, test_tensors=test, task_labels=[0] * TASKS)
    model = SimpleMLP(10, input_size=tasks[0][0][0].numel()) if network == "mlp" else resnet()
    learner = strategy(  # with this plugin Naive is its Replay, which cannot be told how many images to replay
        model=model,
        optimizer=Adam(model.parameters()),
        criterion=CrossEntropyLoss(),
        plugins=[ReplayPlugin(MEMORY, batch_size_mem=BATCH if steps == 1 else 64)],
        train_mb_size=BATCH,
        evaluator=None,
        **passes,
    )
    stream = benchmark.train_stream
    for experience in split_online_stream(stream, BATCH) if "train_passes" in passes else stream:
        learner.train(experience)
    model.eval()
    x, y = (torch.cat(parts) for parts in zip(*test, strict=True))
    return 100 * (model(x).argmax(1) == y).float().mean().item()


def capymoa(tasks, test, network, steps):
    from capymoa.classifier import Finetune
    from capymoa.core.torch.ann import Perceptron
    from capymoa.ocl.evaluation import ocl_train_eval_loop
    from capymoa.ocl.strategy import ExperienceReplay
    from capymoa.stream import Schema
    from torch.utils.data import DataLoader, TensorDataset

    pixels = [str(number) for number in range(tasks[0][0][0].numel())]
    schema = Schema.from_custom([*pixels, "digit"], "digit", {"digit": [str(number) for number in range(10)]})
    model = Perceptron(schema) if network == "mlp" else resnet()
    learner = ExperienceReplay(Finetune(schema, model), buffer_size=MEMORY, repeat=steps)
    train, judged = ([DataLoader(TensorDataset(*task), BATCH) for task in part] for part in (tasks, test))
    return 100 * float(ocl_train_eval_loop(learner, train, judged).accuracy_final)


def resnet():
    """The network of s6mod's preset as a module from grey 8x8 images to logits."""
    from torch import nn

    from s6mod.networks import NetworkConfig, ResNet18

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = ResNet18(NetworkConfig(width=WIDTH), (3, 8, 8), 10)

        def forward(self, x):
            return self.network(x.reshape(-1, 1, 8, 8).expand(-1, 3, -1, -1)).logits

    return Logits()


WIDTH = 16  # of the preset's network


def work(seed, network):
    """Tasks as pairs of images and labels, to learn and to be judged by."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    x, y = torch.tensor(digits.images / 16, dtype=torch.float32), torch.tensor(digits.target)
    x = x.flatten(1) if network == "mlp" else x[:, None]
    rng = np.random.default_rng(seed)
    order = torch.arange(len(y))
    test = order % 5 == 4
    if seed >= 100:
        order = order[~test]  # the test images are not looked at
        test = torch.arange(len(order)) % 5 == 4
    tasks = []
    for classes in rng.permutation(10).reshape(TASKS, 2):
        in_task = torch.isin(y[order], torch.tensor(classes))
        learned = order[in_task & ~test][rng.permutation(int((in_task & ~test).sum()))]
        tasks.append((learned, order[in_task & test]))
    return tuple([(x[ids], y[ids]) for ids in side] for side in zip(*tasks, strict=True))


def main():
    torch.set_num_threads(1)
    library, seeds, *more = sys.argv[1:]
    network = more[0] if more else "resnet" if library.startswith("s6mod") else "mlp"
    steps = int(more[1]) if len(more) > 1 else 1
    first, _, last = seeds.partition("-")
    accuracies = []
    for seed in range(int(first), int(last or first) + 1):
        torch.manual_seed(seed)
        begun = time.process_time()
        accuracies.append(globals()[library](*work(seed, network), network, steps))
        print(
            f"{library} {network} seed {seed}: {accuracies[-1]:.2f} %, {time.process_time() - begun:.0f} CPU s",
            flush=True,
        )
    spread = statistics.stdev(accuracies) if len(accuracies) > 1 else 0
    print(f"{library} {network}: {statistics.mean(accuracies):.2f} ± {spread:.2f}")


if __name__ == "__main__":
    main()
