import torch
from torch import nn
from torch.nn import functional as F

from s6mod.branch import S6MOD, Targets


def test_a_plain_training_loop_on_any_backbone_lowers_the_dot_regression():
    torch.manual_seed(0)
    labels = torch.arange(32) % 4
    images = torch.randn(4, 3, 8, 8)[labels] + 0.5 * torch.randn(32, 3, 8, 8)
    history = []

    backbone = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU())  # any network with a last map
    head = nn.Linear(16, 4)
    branch = S6MOD(channels=16, num_classes=4, map_size=4)
    optimizer = torch.optim.AdamW([*backbone.parameters(), *head.parameters(), *branch.parameters()], lr=3e-3)
    for _ in range(30):
        feature_map = backbone(images)
        logits = head(feature_map.mean((2, 3)))
        terms = branch(feature_map, logits, labels)
        loss = F.cross_entropy(logits, labels) + sum(terms.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append({name: term.item() for name, term in terms.items()})

    assert history[-1]["dr"] < 0.5 * history[0]["dr"]
    assert history[-1]["cont"] < history[0]["cont"]
    assert (branch.scores(backbone(images)).argmax(1) == labels).float().mean() > 0.9


def test_it_takes_the_default_type_as_the_modules_around_it_do():
    torch.set_default_dtype(torch.float64)
    try:
        branch = S6MOD(channels=4, num_classes=3, map_size=2, d_inner=4)
        targets = Targets(torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.3, 0.0]))
        terms = branch(torch.randn(2, 4, 2, 2), torch.randn(2, 3), targets)
    finally:
        torch.set_default_dtype(torch.float32)
    assert {term.dtype for term in terms.values()} == {torch.float64}
    assert all(term.isfinite() for term in terms.values())
