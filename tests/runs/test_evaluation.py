import torch

from s6mod.data import Dataset
from s6mod.metrics import confusion
from s6mod.runs.evaluation import TestTasks

CLASSES = [(4, 1), (0, 5), (2, 3)]
SIZES = [3, 2, 5, 1, 4, 6]  # test images by class


def dataset():
    random = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(SIZES)])
    labels = labels[torch.randperm(len(labels), generator=random)]
    images = torch.randint(0, 256, (len(labels), 3, 8, 8), generator=random, dtype=torch.uint8)
    return Dataset.from_arrays(images, labels, images, labels)


def by_brightness(sizes):
    """Two score tables that depend on an image alone; notes how many images were asked for at once."""

    def scores(images):
        sizes.append(len(images))
        mean = images.float().mean((1, 2, 3))
        return {"near": -(mean[:, None] - 120 - 3 * torch.arange(6)).abs(), "none": torch.zeros(len(images), 6)}

    return scores


def test_tasks_are_scored_together_and_counted_apart():
    data, sizes = dataset(), []
    tests = TestTasks(data, CLASSES, batch=4)
    guesses = tests.guesses(2, by_brightness(sizes))
    assert sizes == [4, 4, 4, 3]  # 6 images of the first task and 9 of the second

    alone = by_brightness([])
    for name, guess in guesses.items():
        expected = []
        for classes in CLASSES[:2]:
            rows = torch.isin(data.test_labels, torch.tensor(classes))
            hits = alone(data.test_images[rows])[name].argmax(1) == data.test_labels[rows]
            expected.append(100 * hits.sum().item() / len(hits))
        assert tests.accuracies(guess) == expected


def test_what_all_tasks_were_taken_for_is_what_the_test_images_were_taken_for():
    data = dataset()
    tests = TestTasks(data, CLASSES, batch=4)
    guesses = tests.guesses(3, by_brightness([]))["near"]
    straight = by_brightness([])(data.test_images)["near"].argmax(1)
    assert torch.equal(confusion(guesses, tests.labels, 6), confusion(straight, data.test_labels, 6))
