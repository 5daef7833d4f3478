import math

import pytest
import torch
from torch.nn import functional as F

from s6mod.branch import S6MOD, BranchShape, S6MODConfig, Tap, Targets, branches
from s6mod.branch.scan import selective_scan_reference
from s6mod.errors import ConfigError, InputError

B, CHANNELS, HEIGHT, WIDTH, CLASSES = 6, 5, 2, 3, 4
SMALL = {"d_inner": 6, "state_dim": 3, "dt_rank": 2, "num_patterns": 5}
LABELS = torch.tensor([0, 1, 1, 3, 0, 1])


def make(seed=0, **options):
    torch.manual_seed(seed)
    return S6MOD(CHANNELS, CLASSES, (HEIGHT, WIDTH), **{**SMALL, **options})


def batch(seed=0, dtype=torch.float32):
    random = torch.Generator().manual_seed(seed)
    feature_map = torch.randn(B, CHANNELS, HEIGHT, WIDTH, generator=random, dtype=dtype)
    return feature_map.requires_grad_(), torch.randn(B, CLASSES, generator=random, dtype=dtype).requires_grad_()


def step_by_step(branch, feature_map, weights):
    """mu and Delta of the branch, sample by sample and position by position, as the steps are written down."""
    scan_orders = [
        [(i, j) for i in range(HEIGHT) for j in range(WIDTH)],
        [(i, j) for i in reversed(range(HEIGHT)) for j in reversed(range(WIDTH))],
        [(i, j) for j in range(WIDTH) for i in range(HEIGHT)],
        [(i, j) for j in reversed(range(WIDTH)) for i in reversed(range(HEIGHT))],
    ]
    d, state = SMALL["d_inner"], SMALL["state_dim"]
    mus, deltas = [], []
    for sample, w in zip(feature_map, weights, strict=True):
        X, Z = torch.zeros(d, HEIGHT, WIDTH).double(), {}
        for i in range(HEIGHT):
            for j in range(WIDTH):
                both = branch.in_proj.weight @ branch.norm(sample[:, i, j])
                X[:, i, j], Z[i, j] = both[:d], both[d:]
        X_hat = F.silu(F.conv2d(X[None], branch.conv.weight, branch.conv.bias, padding=1, groups=d))[0]
        merged = {position: 0.0 for position in scan_orders[0]}
        delta_of_sample = []
        for k, order in enumerate(scan_orders):
            u = torch.stack([X_hat[:, i, j] for i, j in order], dim=1)  # (d, L)
            b, c = branch.bc_proj[k, :state] @ u, branch.bc_proj[k, state:] @ u
            delta = sum(w[i] * (branch.patterns.weight[i, :, k].T @ u) for i in range(SMALL["num_patterns"]))
            dt = F.softplus(branch.dt_proj[k] @ delta + branch.dt_bias[k][:, None])
            A = -branch.A_log[k].exp()
            steps = [value.T[None, :, None] for value in (u, dt, b, c)]  # (1, L, 1, n)
            y = selective_scan_reference(*steps[:2], A[None], *steps[2:], branch.D[k][None])[0, :, 0].T
            for t, position in enumerate(order):
                merged[position] = merged[position] + y[:, t]
            delta_of_sample.append(delta)
        mu = sum(F.silu(Z[position]) * branch.out_norm(merged[position]) for position in merged) / len(merged)
        mus.append(mu / mu.norm())
        deltas.append(torch.stack(delta_of_sample))
    return torch.stack(mus), torch.stack(deltas)


def test_the_branch_computes_the_steps_as_they_are_written_down():
    branch = make().double()
    feature_map, logits = batch(dtype=torch.float64)
    terms = branch(feature_map, logits, LABELS)

    X_hat, _, _ = branch._paths(feature_map)
    count = branch.figures()["patterns"][LABELS]
    g = branch.gate.linear(X_hat.mean(1))
    weights = torch.zeros_like(g)
    for m in range(B):
        top = g[m].topk(int(count[m]))
        weights[m, top.indices] = top.values.softmax(0)
    mu, delta = step_by_step(branch, feature_map, weights)
    cosines = mu @ branch.etf.weight
    P, Q = logits.softmax(1), cosines.softmax(1)
    same = torch.where(LABELS[:, None] == LABELS, 1.0, -1.0)
    flat = delta.flatten(1)

    torch.testing.assert_close(terms["dr"], 0.5 * (cosines[range(B), LABELS] - 1).square().mean())
    torch.testing.assert_close(terms["diff"], (P * (P / Q).log()).sum(1).mean())
    torch.testing.assert_close(
        terms["cont"], -5.0 * (same * torch.cosine_similarity(flat[:, None], flat[None], dim=2)).mean()
    )
    torch.testing.assert_close(terms["z"], g.exp().sum(1).log().square().mean())


@pytest.mark.parametrize("space", ["xhat", "map"])
def test_prototypes_average_the_named_feature_over_all_positions(space):
    branch = make(prototype_space=space)
    feature_map, logits = batch()
    branch(feature_map, logits, LABELS)
    X_hat, _, _ = branch._paths(feature_map)
    x = F.layer_norm(feature_map.permute(0, 2, 3, 1), (CHANNELS,))
    feature = (X_hat if space == "xhat" else x).flatten(1)
    torch.testing.assert_close(branch.routing.prototypes[1], feature[LABELS == 1].mean(0))


def test_parameters_start_as_documented():
    branch = S6MOD(CHANNELS, CLASSES, 4)
    torch.testing.assert_close(branch.A_log.exp(), torch.arange(1.0, 17).expand(4, 128, 16))
    assert torch.equal(branch.D, torch.ones(4, 128))
    dt = F.softplus(branch.dt_bias)
    assert dt.min() >= 1e-3 * 0.999
    assert dt.max() <= 1e-1 * 1.001
    assert abs(dt.log().mean().item() - math.log(1e-2)) < 0.2  # log-uniform: the median is the geometric mean
    assert branch.dt_proj.abs().max() <= 16**-0.5
    assert branch.patterns.weight.shape == (8, 128, 4, 16)
    assert branch.in_proj.bias is None
    assert branch.conv.groups == 128


# One other value for every field; the base is chosen so that routing differs between classes.
ROUTED = {"num_patterns": 40, "lambda0": 1.0, "view": "shared"}
OTHER = {
    "variant": "plus",
    "view": "fresh",
    "d_inner": 8,
    "frame": "orthogonal",
    "state_dim": 4,
    "dt_rank": 3,
    "num_patterns": 41,
    "noisy_gate": True,
    "leaky_gate": True,
    "fixed_patterns": 1,
    "prototype_space": "map",
    "prototype_momentum": 0.1,
    "lambda0": 0.5,
    "distance": "relative",
    "aggregate": "max",
    "rounding": "round",
    "divergence": "qp",
    "weight_dr": 0.5,
    "alpha": 0.5,
    "beta": 0.5,
    "weight_z": 0.5,
}


def outcome(**options):
    """What a run of three steps with these options computes."""
    branch = make(**{**ROUTED, **options})
    results = []
    for seed in range(3):
        feature_map, logits = batch(seed)
        tap = Tap(feature_map, logits, Targets(LABELS), again=lambda seed=seed: batch(seed + 10)[0])
        results += branch.losses(tap, torch.Generator().manual_seed(seed)).values()
    return torch.stack(results)


def test_every_option_is_listed_here():
    assert set(OTHER) == set(S6MODConfig.model_fields) - {"name"}


@pytest.mark.parametrize("field", sorted(OTHER))
def test_no_option_is_ignored(field):
    assert torch.equal(outcome(), outcome())
    assert not torch.equal(outcome(), outcome(**{field: OTHER[field]}))


def test_weights_multiply_their_terms():
    feature_map, logits = batch()
    plain = make(weight_dr=1.0, alpha=1.0, beta=1.0, weight_z=1.0)(feature_map, logits, LABELS)
    heavy = make(weight_dr=2.0, alpha=3.0, beta=4.0, weight_z=5.0)(feature_map, logits, LABELS)
    for name, weight in {"dr": 2, "diff": 3, "cont": 4, "z": 5}.items():
        torch.testing.assert_close(heavy[name], weight * plain[name])


WEIGHTS = {"dr": "weight_dr", "diff": "alpha", "cont": "beta", "z": "weight_z"}


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_term_of_weight_zero_is_left_out_and_the_others_stay_as_they_are(name):
    feature_map, logits = batch()
    every = make()(feature_map, logits, LABELS)
    others = make(**{WEIGHTS[name]: 0.0})(feature_map, logits, LABELS)
    assert list(others) == [term for term in WEIGHTS if term != name]
    for term in others:
        assert torch.equal(others[term], every[term])


def test_a_term_of_weight_zero_is_not_computed(monkeypatch):
    never = lambda *_: pytest.fail("it was computed")  # noqa: E731
    for term in ("dot_regression", "divergence", "contrastive_discretization", "z_loss"):
        monkeypatch.setattr(f"s6mod.branch.losses.{term}", never)
    branch = make(**dict.fromkeys(WEIGHTS.values(), 0.0))
    assert branch(*batch(), LABELS) == {}
    assert branch.routing.seen.any()  # prototypes and figures go on all the same
    assert branch.mean_patterns > 0


def test_the_divergence_reaches_the_base_head_the_feature_map_and_the_branch():
    branch = make()
    feature_map, logits = batch()
    branch(feature_map, logits, LABELS)["diff"].backward()
    reached = {"logits": logits, "feature map": feature_map, **dict(branch.named_parameters())}
    for name, tensor in reached.items():
        assert tensor.grad is not None, name
        assert tensor.grad.abs().sum() > 0, name


def test_the_other_terms_leave_the_base_head_alone():
    terms = make()(*(given := batch()), LABELS)
    for name in ("dr", "cont", "z"):
        logits_grad, map_grad = torch.autograd.grad(
            terms[name], [given[1], given[0]], retain_graph=True, allow_unused=True
        )
        assert logits_grad is None
        assert map_grad.abs().sum() > 0


def test_a_label_tensor_and_unmixed_targets_are_the_same():
    feature_map, logits = batch()
    bare = make()(feature_map, logits, LABELS)
    unmixed = make()(feature_map, logits, Targets(LABELS, LABELS.flip(0), torch.zeros(B)))
    for name in bare:
        torch.testing.assert_close(unmixed[name], bare[name])


def test_mixed_targets_are_taken_and_their_prototypes_left_alone():
    branch = make()
    mixed = Targets(LABELS, LABELS.flip(0), torch.full((B,), 0.3))
    terms = branch(*batch(), mixed)
    assert all(torch.isfinite(term) for term in terms.values())
    assert not branch.routing.seen.any()
    assert branch.figures()["mean_patterns"] == SMALL["num_patterns"]  # nothing known: all patterns


def test_evaluation_moves_no_state():
    branch = make(noisy_gate=True).eval()
    feature_map, logits = batch()
    before = {name: value.clone() for name, value in branch.state_dict().items()}
    random = torch.get_rng_state()
    branch(feature_map, logits, LABELS)
    branch.train().scores(feature_map)
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in branch.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_scores_are_cosines_under_inference_routing():
    branch = make(**ROUTED)
    torch.nn.init.normal_(branch.dt_proj, std=10.0)  # so that the choice of patterns shows in the scores
    feature_map, logits = batch()
    branch(feature_map, logits, LABELS)
    scores = branch.eval().scores(feature_map)
    assert scores.shape == (B, CLASSES)
    assert not scores.requires_grad

    X_hat, Z, feature = branch._paths(feature_map)
    distances = torch.cdist(feature.flatten(1), branch.routing.prototypes[branch.routing.seen])
    count = (40 * torch.exp(-distances).mean(1)).ceil().long().clamp(1, 40)
    assert len(count.unique()) > 1
    mu, _ = branch._select(X_hat, Z, branch.gate(X_hat, count)[1])
    torch.testing.assert_close(scores, mu @ branch.etf.weight)


def test_the_fresh_view_feeds_the_branch_and_the_base_view_the_base_distribution():
    feature_map, logits = batch()
    fresh, _ = batch(1)
    terms = make(view="fresh").losses(Tap(feature_map, logits, Targets(LABELS), again=lambda: fresh))
    expected = make()(fresh, logits, LABELS)
    for name in expected:
        assert torch.equal(terms[name], expected[name])
    assert make(view="fresh").wants_fresh_view
    assert make(variant="plus").wants_fresh_view
    assert not make().wants_fresh_view
    shared = Tap(feature_map, logits, Targets(LABELS), again=lambda: pytest.fail("the shared view is enough"))
    make().losses(shared)


def test_plus_learns_from_both_views_and_the_base_head_meets_the_fresh_one():
    feature_map, logits = batch()
    fresh, _ = batch(1)
    plus, paper = make(variant="plus"), make()
    terms = plus.losses(Tap(feature_map, logits, Targets(LABELS), again=lambda: fresh))
    assert list(terms) == ["dr", "diff", "z"]
    both = paper(torch.cat([feature_map, fresh]), torch.cat([logits, logits]), LABELS.repeat(2))
    assert torch.equal(terms["dr"], both["dr"])
    assert torch.equal(terms["z"], both["z"])
    assert torch.equal(plus.routing.prototypes, paper.routing.prototypes)

    X_hat, Z, _ = paper._paths(fresh)
    weights = paper.gate(X_hat, paper.routing.count_for_targets(Targets(LABELS).soft(CLASSES)))[1]
    Q = paper.etf(paper._select(X_hat, Z, weights)[0]).softmax(1)
    P = logits.softmax(1)
    torch.testing.assert_close(terms["diff"], (P * (P / Q).log()).sum(1).mean())


def test_views_of_mixed_samples_keep_their_mixtures():
    mixed = Targets(torch.tensor([0, 1]), torch.tensor([2, 1]), torch.tensor([0.25, 0.0])).repeated(2)
    q = mixed.soft(3)
    assert torch.equal(q[:2], q[2:])
    assert torch.equal(q[0], torch.tensor([0.75, 0.0, 0.25]))
    assert torch.equal(mixed.unmixed(q)[2:], torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))


def test_figures_tell_what_the_routing_does():
    branch = make(**ROUTED)
    feature_map, logits = batch()
    branch(feature_map, logits, LABELS)
    figures = branch.figures()
    assert figures["seen"].tolist() == [True, True, False, True]
    sigma, patterns = figures["sigma"], figures["patterns"]
    assert torch.equal(patterns, (40 * sigma).ceil())
    torch.testing.assert_close(figures["mean_patterns"], patterns[LABELS].mean())
    assert figures["pattern_load"].shape == (40,)
    torch.testing.assert_close(figures["pattern_load"].sum(), torch.tensor(1.0))
    prototypes = branch.routing.prototypes[figures["seen"]]
    torch.testing.assert_close(figures["prototype_distance"], torch.pdist(prototypes).mean())
    assert not any(value.requires_grad for value in figures.values())

    first = figures["pattern_load"].clone()
    branch(*batch(1), LABELS)
    assert torch.equal(figures["pattern_load"], first)  # what was read does not change under the reader


def test_a_saved_branch_goes_on_as_if_it_had_not_stopped():
    branch = make(distance="relative", **ROUTED)
    branch(*batch(), LABELS)
    resumed = make(seed=9, distance="relative", **ROUTED)
    resumed.load_state_dict(branch.state_dict())
    for seed in (1, 2):
        ours, theirs = branch(*batch(seed), LABELS), resumed(*batch(seed), LABELS)
        for name in ours:
            assert torch.equal(ours[name], theirs[name])
    assert torch.equal(branch.eval().scores(batch()[0]), resumed.eval().scores(batch()[0]))


def test_channels_last_maps_give_the_same_terms():
    feature_map, logits = batch()
    plain = make()(feature_map, logits, LABELS)
    last = make()(feature_map.contiguous(memory_format=torch.channels_last), logits, LABELS)
    for name in plain:
        torch.testing.assert_close(last[name], plain[name])


def test_under_autocast_every_bit_is_that_of_full_precision():
    half = [value.detach().bfloat16().requires_grad_() for value in batch()]
    wide = [value.detach().float().requires_grad_() for value in half]
    plain_branch, cast_branch = make(), make()
    plain = plain_branch(*wide, LABELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = cast_branch(*half, LABELS)
        scores = cast_branch.scores(half[0])
    for name in plain:
        assert cast[name].dtype == torch.float32
        assert torch.equal(cast[name], plain[name])
    assert torch.equal(scores, plain_branch.scores(wide[0]))
    for (name, ours), theirs in zip(cast_branch.named_buffers(), plain_branch.buffers(), strict=True):
        assert torch.equal(ours, theirs), name

    sum(plain.values()).backward()
    sum(cast.values()).backward()
    for (name, ours), theirs in zip(cast_branch.named_parameters(), plain_branch.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad), name
    for ours, theirs in zip(half, wide, strict=True):
        assert torch.equal(ours.grad, theirs.grad.bfloat16())


@pytest.mark.parametrize("scale", [0.0, 1e-4, 1e4])
def test_faint_blank_and_loud_maps_give_finite_terms_and_gradients(scale):
    branch = make()
    feature_map, logits = batch()
    feature_map = (scale * feature_map.detach()).requires_grad_()
    sum(branch(feature_map, logits, LABELS).values()).backward()
    assert torch.isfinite(feature_map.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in branch.parameters())


def test_the_registry_builds_the_same_branch_as_the_constructor():
    config = branches.configure({"name": "s6mod", **SMALL, "beta": 2.5})
    torch.manual_seed(0)
    built = branches["s6mod"].build(config, BranchShape(CHANNELS, (HEIGHT, WIDTH), CLASSES))
    assert built.config == make(beta=2.5).config
    for ours, theirs in zip(built.parameters(), make(beta=2.5).parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_defaults_are_those_of_the_paper():
    config = S6MODConfig()
    assert (config.alpha, config.beta, config.num_patterns) == (1, 5, 8)
    assert (config.weight_dr, config.weight_z, config.lambda0) == (1, 1, 1 / 24)
    assert all(field.description for name, field in S6MODConfig.model_fields.items() if name != "name")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_pattern": 3}, "did you mean 'num_patterns'?"),
        ({"alpha": -1.0}, "expected for 'alpha'"),
        ({"fixed_patterns": 6}, "fixed_patterns at most num_patterns, got 6 and 5"),
        ({"d_inner": 3}, "set branch.d_inner=4"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, sentence):
    with pytest.raises(ConfigError) as refusal:
        make(**options)
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("shape", [(B, CHANNELS, 4, 4), (B, 7, HEIGHT, WIDTH), (B, CHANNELS, 6), (0, CHANNELS, 2, 3)])
def test_maps_of_another_shape_are_refused(shape):
    branch, feature_map = make(), torch.zeros(shape)
    with pytest.raises(InputError, match=r"expected a feature map of shape \(B, 5, 2, 3\), got"):
        branch.scores(feature_map)
    with pytest.raises(InputError, match=r"expected a feature map of shape \(B, 5, 2, 3\), got"):
        branch(feature_map, torch.zeros(len(feature_map), CLASSES), LABELS[: len(feature_map)])


def test_logits_and_labels_of_another_shape_are_refused():
    feature_map, logits = batch()
    with pytest.raises(InputError, match=r"expected base logits of shape \(6, 4\), got \(6, 3\)"):
        make()(feature_map, logits[:, :3], LABELS)
    with pytest.raises(InputError, match=r"expected base logits of shape \(6, 4\), got \(4, 4\)"):
        make()(feature_map, logits[:4], LABELS[:4])
    with pytest.raises(InputError, match=r"expected int64 labels of shape \(6,\), got torch.int64 of shape \(5,\)"):
        make()(feature_map, logits, LABELS[:5])
    with pytest.raises(InputError, match=r"got torch.float32 of shape \(6,\)"):
        make()(feature_map, logits, LABELS.float())
