import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import NearestCentroid

from s6mod.errors import InputError
from s6mod.metrics import AccuracyMatrix, Metrics, confusion, ncm_scores, nearest_centroid


def metrics_of(*rows):
    return Metrics.of(AccuracyMatrix.from_rows(rows))


def test_a_worked_example():
    metrics = metrics_of([80], [60, 90], [70, 50, 100])
    assert metrics.accuracy == pytest.approx((70 + 50 + 100) / 3)
    assert metrics.learning_accuracy == pytest.approx((80 + 90 + 100) / 3)
    assert metrics.forgetting == pytest.approx(((80 - 70) + (90 - 50)) / 2)
    assert metrics.forgetting_mose == pytest.approx(((80 - 70) + (90 - 50) + 0) / 3)
    # After task 1 the worst loss is 80 - 60, after task 2 it is 90 - 50: not the mean loss of the tasks.
    assert metrics.forgetting_paper == pytest.approx((20 + 40) / 2)
    assert metrics.curve == pytest.approx((80, 75, 220 / 3))
    assert metrics.anytime_accuracy == pytest.approx((80 + 75 + 220 / 3) / 3)


def test_forgetting_is_measured_from_the_best_ever_not_from_the_first():
    metrics = metrics_of([50], [80, 60], [40, 60, 70])
    assert metrics.forgetting == pytest.approx((80 - 40) / 2)
    # The paper's equation measures from the first: after task 1 50 - 80, after task 2 max(50 - 40, 60 - 60).
    assert metrics.forgetting_paper == pytest.approx((-30 + 10) / 2)


def test_a_task_that_only_improves_is_not_forgotten():
    metrics = metrics_of([50], [70, 60])
    assert metrics.forgetting == metrics.forgetting_mose == 0
    assert metrics.forgetting_paper == pytest.approx(-20)


def test_a_single_task_has_nothing_to_forget():
    metrics = metrics_of([64])
    assert (metrics.forgetting, metrics.forgetting_mose, metrics.forgetting_paper) == (0, 0, 0)
    assert metrics.accuracy == metrics.learning_accuracy == metrics.anytime_accuracy == 64


percent = st.floats(0, 100)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 6).flatmap(
        lambda T: st.tuples(*(st.lists(percent, min_size=i, max_size=i) for i in range(1, T + 1)))
    )
)
def test_relations_that_hold_for_any_run(rows):
    metrics = metrics_of(*rows)
    T = len(rows)
    assert metrics.forgetting_mose == pytest.approx((T - 1) / T * metrics.forgetting)
    assert metrics.forgetting >= 0
    assert metrics.accuracy == pytest.approx(metrics.curve[-1])
    assert AccuracyMatrix.from_rows(rows).rows() == [list(row) for row in rows]
    means = metrics.accuracy, metrics.learning_accuracy, metrics.anytime_accuracy
    assert all(0 <= value <= 100 + 1e-9 for value in means)


def test_tasks_not_yet_trained_are_nan_and_the_matrix_cannot_be_written_to():
    rows = [[10.0], [20.0, 30.0]]
    matrix = AccuracyMatrix.from_rows(rows)
    assert np.isnan(matrix.values[0, 1])
    with pytest.raises(ValueError, match="read-only"):
        matrix.values[0, 0] = 0


@pytest.mark.parametrize(
    ("rows", "hint"),
    [
        ([], "square"),
        ([[1], [1]], "expected 2 accuracies after task 1, got 1"),
        ([[1, 2]], "expected 1 accuracies after task 0, got 2"),
        ([[101]], "0..100 percent"),
        ([[-1]], "0..100 percent"),
        ([[float("nan")]], "0..100 percent"),
    ],
)
def test_rows_that_are_no_accuracies_are_refused(rows, hint):
    with pytest.raises(InputError, match=hint):
        AccuracyMatrix.from_rows(rows)


def test_accuracies_of_the_future_are_refused():
    with pytest.raises(InputError, match="expected NaN for tasks not yet trained"):
        AccuracyMatrix(np.full((2, 2), 50.0))


def test_figures_are_plain_numbers():
    plain = metrics_of([80], [60, 90]).plain()
    assert plain["curve"] == [80, 75]
    assert all(type(value) is float for name, value in plain.items() if name != "curve")


@pytest.mark.parametrize("autocast", [False, True])
def test_nearest_means_agree_with_scikit_learn(autocast):
    rng = torch.Generator().manual_seed(0)
    present = torch.tensor([0, 2, 3, 6])
    labels = present[torch.randint(4, (60,), generator=rng)]
    train = torch.randn(60, 5, generator=rng) + 0.5 * labels[:, None] + 1000  # far from zero: cancellation would show
    test = torch.randn(40, 5, generator=rng) + 1000
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        centroids, seen = nearest_centroid(train, labels, 8)
        scores = ncm_scores(test, centroids, seen)
    oracle = NearestCentroid().fit(train.numpy(), labels.numpy())
    assert seen.nonzero().flatten().tolist() == oracle.classes_.tolist() == present.tolist()
    assert np.allclose(centroids[seen].numpy(), oracle.centroids_, rtol=1e-6)
    assert scores.argmax(1).tolist() == oracle.predict(test.numpy()).tolist()
    exact = (test.double()[:, None] - centroids.double()[seen]).square().sum(2).neg()
    assert torch.allclose(scores[:, seen].double(), exact, rtol=1e-4)


def test_scores_are_negative_squared_distances():
    centroids, present = nearest_centroid(torch.tensor([[0.0, 0], [2, 0], [1, 4]]), torch.tensor([0, 0, 1]), 2)
    assert centroids.tolist() == [[1, 0], [1, 4]]
    assert ncm_scores(torch.tensor([[1.0, 3.0]]), centroids, present).tolist() == [[-9, -1]]


def test_a_class_without_samples_is_never_chosen():
    centroids, present = nearest_centroid(torch.full((2, 3), 50.0), torch.tensor([1, 1]), 3)
    scores = ncm_scores(torch.zeros(1, 3), centroids, present)  # zero is where an absent class's empty mean lies
    assert scores.argmax().item() == 1
    assert scores[0, [0, 2]].tolist() == [-torch.inf, -torch.inf]


def test_half_precision_features_are_averaged_in_float32():
    features = torch.full((4096, 1), 1.0, dtype=torch.bfloat16)
    centroids, _ = nearest_centroid(features, torch.zeros(4096, dtype=torch.int64), 1)
    assert centroids.dtype == torch.float32
    assert centroids.item() == 1


def test_confusion_counts_rows_by_truth_and_columns_by_prediction():
    labels, predictions = torch.tensor([0, 0, 1, 2, 2, 2]), torch.tensor([0, 1, 1, 0, 0, 2])
    assert confusion(predictions, labels, 3).tolist() == [[1, 1, 0], [0, 1, 0], [2, 0, 1]]
    assert np.array_equal(confusion(predictions, labels, 4)[:3, :3], confusion_matrix(labels, predictions))
    assert confusion(predictions, labels, 4).sum() == 6
