import pytest
import torch
from torch.nn import functional as F

from s6mod.methods.expert_losses import cross_entropy, distillation, supervised_contrastive


def scl_by_loops(z, labels, temperature):
    total = 0.0
    for expert in range(z.shape[1]):
        v = z[:, expert] / z[:, expert].norm(dim=1, keepdim=True)
        anchors = []
        for i in range(len(v)):
            others = [j for j in range(len(v)) if j != i]
            denominator = sum(torch.exp(v[i] @ v[j] / temperature) for j in others)
            terms = [
                torch.log(torch.exp(v[i] @ v[j] / temperature) / denominator) for j in others if labels[j] == labels[i]
            ]
            if terms:
                anchors.append(-sum(terms) / len(terms))
        total = total + sum(anchors) / len(anchors)
    return total


@pytest.mark.parametrize("labels", [[0, 1, 0, 1, 2, 2, 0], [0, 1, 0, 3, 2, 2, 0]])  # in the second, 1 and 3 are alone
def test_the_contrastive_loss_is_that_of_direct_loops_with_its_gradient(labels):
    labels = torch.tensor(labels)
    z = torch.randn(7, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    ours, theirs = supervised_contrastive(z, labels, 0.07), scl_by_loops(z, labels, 0.07)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (ours, theirs)))


def test_contrastive_loss_and_distillation_are_in_full_precision_whatever_the_network_gives():
    z = torch.randn(7, 4, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    labels = torch.tensor([0, 1, 0, 1, 2, 2, 0])
    with torch.autocast("cpu", torch.bfloat16):
        inside = supervised_contrastive(z, labels, 0.07), distillation(z[:, 3], z[:, :3])
    z = z.float()
    assert torch.equal(inside[0], supervised_contrastive(z, labels, 0.07))
    assert torch.equal(inside[1], distillation(z[:, 3], z[:, :3]))


def test_distillation_is_a_frobenius_norm_over_the_batch_and_teaches_the_student_alone():
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(6, 5, dtype=torch.float64, generator=generator).requires_grad_()
    features = torch.randn(6, 3, 5, dtype=torch.float64, generator=generator).requires_grad_()
    theirs = 0.0
    for expert in range(3):
        squares = 0.0
        for row in range(6):
            teacher = features[row, expert].detach()
            gap = student[row] / student[row].norm() - teacher / teacher.norm()
            squares = squares + (gap**2).sum()
        theirs = theirs + torch.sqrt(squares)
    ours = distillation(student, features)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, student, retain_graph=True)[0] for loss in (ours, theirs)))
    assert torch.autograd.grad(ours, features, allow_unused=True) == (None,)
    # It grows with the square root of the batch.
    doubled = distillation(student.repeat(4, 1), features.repeat(4, 1, 1))
    torch.testing.assert_close(doubled, 2 * ours)


def test_cross_entropy_is_a_mean_over_samples_and_a_sum_over_experts():
    logits = torch.randn(6, 4, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 1, 2, 3, 4, 0])
    expected = sum(F.cross_entropy(logits[:, expert], labels) for expert in range(4))
    torch.testing.assert_close(cross_entropy(logits, labels), expected)
    assert cross_entropy(logits[:0], labels[:0]) == 0
