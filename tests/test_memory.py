import pytest
import torch

from s6mod.errors import InputError
from s6mod.memory import ReplayMemory

CPU = torch.device("cpu")
SHAPE = (3, 2, 2)


def fill(memory: ReplayMemory, count: int, batch: int, generator: torch.Generator) -> None:
    """Offer ``count`` samples whose pixels and label both say which sample it is."""
    for start in range(0, count, batch):
        labels = torch.arange(start, min(start + batch, count))
        images = (labels % 251).to(torch.uint8)[:, None, None, None].expand(-1, *SHAPE)
        memory.store(memory.place(labels, start // batch, generator), images, labels)


@pytest.mark.parametrize("reservoir", ["sequential", "batched", "greedy"])
def test_rows_are_filled_in_order_and_the_budget_is_kept(reservoir):
    memory = ReplayMemory(25, SHAPE, reservoir, CPU)
    fill(memory, 20, 10, torch.Generator().manual_seed(0))
    assert memory.labels[:20].tolist() == list(range(20))
    assert len(memory) == 20
    fill(memory, 500, 10, torch.Generator().manual_seed(0))
    assert len(memory) == 25
    assert memory.images.shape[0] == 26  # one scratch row


@pytest.mark.parametrize("reservoir", ["sequential", "batched", "greedy"])
def test_host_labels_device_labels_and_pixels_stay_together(reservoir):
    memory = ReplayMemory(30, SHAPE, reservoir, CPU)
    fill(memory, 700, 7, torch.Generator().manual_seed(1))
    images, labels = memory.gather(torch.arange(30))
    assert torch.equal(labels, memory.labels)
    assert torch.equal(images[:, 0, 0, 0].long(), memory.labels % 251)
    assert torch.equal(memory.tasks, memory.labels // 7)


def test_sequential_reservoir_keeps_every_sample_with_equal_probability():
    size, count, runs = 20, 100, 1500
    generator = torch.Generator().manual_seed(2)
    kept = torch.zeros(count)
    for _ in range(runs):
        memory = ReplayMemory(size, (1, 1, 1), "sequential", CPU)
        for start in range(0, count, 10):
            memory.place(torch.arange(start, start + 10), 0, generator)
        kept[memory.labels] += 1
    expected = runs * size / count
    # Each count is binomial; the statistic is near chi-squared with 99 degrees of freedom (0.1 % point: 148).
    statistic = ((kept - expected) ** 2 / (expected * (1 - size / count))).sum().item() * (count - 1) / count
    assert statistic < 148


def test_batched_reservoir_draws_a_whole_batch_with_the_count_before_it():
    # 20 seen, memory of 10: each of the next samples hits with probability 10/20, not 10/21, 10/22, ...
    generator = torch.Generator().manual_seed(3)
    hits = 0
    for _ in range(4000):
        memory = ReplayMemory(10, (1, 1, 1), "batched", CPU)
        memory.place(torch.arange(10), 0, generator)
        memory.seen = 20
        hits += int(memory.place(torch.tensor([99]), 0, generator)[0] < 10)
    assert abs(hits / 4000 - 0.5) < 0.03


def place(memory, labels, generator):
    """Pixels that say the label."""
    labels = torch.tensor(labels)
    images = labels.to(torch.uint8)[:, None, None, None].expand(-1, *SHAPE)
    memory.store(memory.place(labels, 0, generator), images, labels)


def test_greedy_fills_and_then_takes_from_the_largest_class_until_all_have_the_same():
    memory, generator = ReplayMemory(12, SHAPE, "greedy", CPU), torch.Generator().manual_seed(0)
    place(memory, [0] * 10, generator)
    place(memory, [0, 1, 1, 1], generator)
    assert memory.labels.bincount().tolist() == [9, 3]
    for labels in ([1] * 5, [0] * 9):  # no class grows beyond its share
        place(memory, labels, generator)
        assert memory.labels.bincount().tolist() == [6, 6]
    place(memory, [2] * 7, generator)
    assert memory.labels.bincount().tolist() == [4, 4, 4]
    place(memory, [3, 4, 3, 4, 3, 4], generator)
    assert sorted(memory.labels.bincount().tolist()) == [2, 2, 2, 3, 3]
    images, labels = memory.gather(torch.arange(12))
    assert torch.equal(labels, memory.labels)
    assert torch.equal(images[:, 0, 0, 0].long(), memory.labels)


def test_greedy_replaces_each_sample_of_the_largest_class_alike():
    generator, hits = torch.Generator().manual_seed(0), torch.zeros(6)
    for _ in range(600):
        memory = ReplayMemory(6, (1, 1, 1), "greedy", CPU)
        memory.place(torch.tensor([0, 0, 0, 0, 1, 1]), 0, generator)
        hits[memory.place(torch.tensor([2]), 0, generator)] += 1
    assert hits[4:].sum() == 0
    assert hits[:4].min() > 105  # of 150, four standard deviations


def test_two_samples_of_a_batch_that_want_one_row_the_later_wins():
    memory = ReplayMemory(1, SHAPE, "sequential", CPU)
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        labels = torch.randint(0, 100, (6,), generator=generator)
        rows = memory.place(labels, 0, generator)
        assert (rows == 0).sum() <= 1
        if (rows == 0).any():
            assert memory.labels[0] == labels[rows == 0][0]


def test_sampling_is_without_replacement_uniform_and_gives_all_when_there_are_few():
    memory = ReplayMemory(50, SHAPE, "sequential", CPU)
    generator = torch.Generator().manual_seed(4)
    fill(memory, 30, 10, generator)
    assert memory.sample(64, generator).tolist() == list(range(30))
    counts = torch.zeros(30)
    for _ in range(2000):
        rows = memory.sample(6, generator)
        assert len(set(rows.tolist())) == 6
        counts[rows] += 1
    assert ((counts - 400).abs() < 90).all()  # five standard deviations of a binomial (2000, 0.2)
    chosen = memory.sample(3, generator, among=torch.tensor([2, 5, 7, 11]))
    assert set(chosen.tolist()) <= {2, 5, 7, 11}


def test_values_go_where_their_samples_go_and_come_back_with_the_state():
    memory, other = (ReplayMemory(16, SHAPE, "sequential", CPU, {"score": (), "pair": (2,)}) for _ in range(2))
    generator = torch.Generator().manual_seed(5)
    for start in range(0, 100, 10):
        labels = torch.arange(start, start + 10)
        images = labels.to(torch.uint8)[:, None, None, None].expand(-1, *SHAPE)
        values = {"score": labels.float(), "pair": torch.stack([labels, -labels], 1).float()}
        memory.store(memory.place(labels, 0, generator), images, labels, values)
    other.load_state_dict(memory.state_dict())
    for one in (memory, other):
        assert torch.equal(one.values["score"][:16], memory.labels.float())
        assert torch.equal(one.values["pair"][:16], torch.stack([memory.labels, -memory.labels], 1).float())
    without = ReplayMemory(16, SHAPE, "sequential", CPU)
    assert memory.nbytes - without.nbytes == 4 * 3 * 17
    assert "values" not in without.state_dict()


@pytest.mark.parametrize(("declared", "given"), [({"score": ()}, {}), ({}, {"score": 0})])
def test_values_other_than_those_declared_are_refused_in_a_sentence(declared, given):
    memory, labels = ReplayMemory(4, SHAPE, "sequential", CPU, declared), torch.arange(2)
    images, values = torch.ones(2, *SHAPE, dtype=torch.uint8), {name: torch.zeros(2) for name in given}
    with pytest.raises(InputError, match=r"^expected the values that the method declares .*, got (none|score); plan"):
        memory.store(labels, images, labels, values)
    assert not memory.images.any()


def test_state_comes_back_whole():
    memory = ReplayMemory(16, SHAPE, "sequential", CPU)
    fill(memory, 100, 10, torch.Generator().manual_seed(5))
    other = ReplayMemory(16, SHAPE, "sequential", CPU)
    other.load_state_dict(memory.state_dict())
    assert torch.equal(other.gather(torch.arange(16))[0], memory.gather(torch.arange(16))[0])
    assert torch.equal(other.gather(torch.arange(16))[1], memory.labels)
    assert (other.filled, other.seen, other.tasks.tolist()) == (16, 100, memory.tasks.tolist())
