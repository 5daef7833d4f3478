"""What a branch must bear on a GPU: no value read back to the host, and a step that can be captured and replayed."""

import copy

import pytest
import torch

from s6mod.branch import S6MOD

pytestmark = pytest.mark.gpu


def make(**options):
    torch.manual_seed(0)
    return S6MOD(32, 10, 4, **options).cuda()


def batches(count):
    random = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield (
            torch.randn(20, 32, 4, 4, generator=random).cuda().contiguous(memory_format=torch.channels_last),
            torch.randn(20, 10, generator=random).cuda(),
            torch.randint(10, (20,), generator=random).cuda(),
        )


OPTIONS = [
    {},
    {"distance": "relative", "aggregate": "max", "rounding": "round"},
    {"noisy_gate": True, "leaky_gate": True},
]


def backward(branch, feature_map, logits, labels, generator):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        terms = branch(feature_map, logits, labels, generator)
    sum(terms.values()).backward()
    return terms


@pytest.mark.parametrize("options", OPTIONS)
def test_a_step_reads_nothing_back_to_the_host(options):
    branch, generator = make(**options), torch.Generator("cuda").manual_seed(0)
    given = list(batches(2))
    backward(branch, *given[0], generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        backward(branch, *given[1], generator)
        branch.scores(given[1][0])
        branch.figures()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("options", OPTIONS[:2])
def test_a_captured_step_replays_as_it_runs_eagerly(options):
    branch = make(**options)
    given = list(batches(5))
    static = [value.clone() for value in given[0]]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            backward(branch, *static, None)
    torch.cuda.current_stream().wait_stream(side)

    eager = copy.deepcopy(branch)
    branch.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = backward(branch, *static, None)
    for values in given[1:]:
        for place, value in zip(static, values, strict=True):
            place.copy_(value)
        graph.replay()
        eager.zero_grad(set_to_none=True)
        expected = backward(eager, *values, None)
        for name in expected:
            torch.testing.assert_close(captured[name], expected[name])
        for name, value in eager.figures().items():
            torch.testing.assert_close(branch.figures()[name], value)
    torch.testing.assert_close(branch.routing.prototypes, eager.routing.prototypes)
    assert branch.mean_patterns > 0


def test_terms_and_gradients_are_those_of_the_cpu():
    feature_map, logits, labels = next(batches(1))
    on_gpu = make()
    on_cpu = copy.deepcopy(on_gpu).cpu()
    ours = on_gpu(feature_map, logits, labels)
    theirs = on_cpu(feature_map.cpu(), logits.cpu(), labels.cpu())
    for name in ours:
        torch.testing.assert_close(ours[name].cpu(), theirs[name], rtol=1e-3, atol=1e-4)
    sum(ours.values()).backward()
    sum(theirs.values()).backward()
    for (name, there), here in zip(on_gpu.named_parameters(), on_cpu.parameters(), strict=True):
        # Convolutions may round to TF32.
        assert (there.grad.cpu() - here.grad).norm() <= 1e-2 * here.grad.norm(), name
