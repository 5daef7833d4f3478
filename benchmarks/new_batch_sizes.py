"""What cuDNN takes when a batch size is new to it: python benchmarks/new_batch_sizes.py (needs a CUDA device).

Milliseconds of the first and of the second call, forwards and backwards, in bfloat16 with channels last. It builds a
plan for every new size, and for depthwise convolutions it compiles the kernels.
"""

import time

import torch
from torch.nn import functional as F

# inputs, outputs, kernel, stride, groups, side
CONVOLUTIONS = {
    "3x3": (64, 64, 3, 1, 1, 32),
    "1x1": (64, 64, 1, 1, 1, 32),
    "depthwise 3x3": (64, 64, 3, 1, 64, 16),
    "depthwise 3x3, stride 2": (64, 64, 3, 2, 64, 32),
}
SIZES = (301, 303, 317)


def now():
    torch.cuda.synchronize()
    return 1000 * time.perf_counter()


def timed(weight, batch, stride, groups, side):
    shape = batch, weight.shape[1] * groups, side, side
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    begin = now()
    y = F.conv2d(x, weight, None, stride, weight.shape[2] // 2, 1, groups)
    middle = now()
    torch.autograd.grad(y, (x, weight), torch.ones_like(y))
    return f"{middle - begin:.1f} / {now() - middle:.1f}"


for name, (inputs, outputs, kernel, stride, groups, side) in CONVOLUTIONS.items():
    weight = torch.randn(outputs, inputs // groups, kernel, kernel, device="cuda", dtype=torch.bfloat16)
    weight = weight.contiguous(memory_format=torch.channels_last).requires_grad_()
    timed(weight, 300, stride, groups, side)  # what the process itself takes to begin
    first, second = ([timed(weight, batch, stride, groups, side) for batch in SIZES] for _ in range(2))
    print(f"{name}: new {', '.join(first)}; again {', '.join(second)}", flush=True)
