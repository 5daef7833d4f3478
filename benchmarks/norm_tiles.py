"""Which tiles suit the kernels of the norms: python benchmarks/norm_tiles.py [PARTS] (needs a CUDA device).

Each kernel of ``norm_triton`` runs alone, captured, over more maps than the cache holds, as ResNet-18 has them for 74
images and PARTS views (2). A line: microseconds of the best tiles first, as ``us numbers/programs/warps``.
"""

import itertools
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
import triton

from s6mod.maps_triton import split_rows
from s6mod.networks import norm_triton

PARTS = int(sys.argv[1]) if len(sys.argv) > 1 else 2
IMAGES = 74
MAPS = {64: 32, 128: 16, 256: 8, 512: 4}  # side by channels
SUMS = [(*tile, warps) for *tile, warps in itertools.product((2048, 4096), (132, 264, 528, 1056, 2112), (4, 8))]
WRITES = [(tile, 0, warps) for tile, warps in ((2048, 2), (2048, 4), (4096, 4), (4096, 8), (8192, 8))]
BYTES = 200e6  # of the maps that a loop goes through


def launches(channels, tile, programs, warps, shortcut):
    """The four kernels that go over rows, by name: what launches each for one set of maps."""
    block = min(channels, norm_triton.COLUMNS)
    rows, columns = IMAGES * MAPS[channels] ** 2, channels // block
    chunks, chunk = split_rows(rows, tile // block, programs // columns // PARTS)
    sizes = {"BLOCK_R": tile // block, "BLOCK_C": block, "num_warps": warps}
    flags = {"SHORTCUT": shortcut, "RELU": True, **sizes}
    sums = torch.empty(PARTS, 2, chunks, channels, device="cuda")
    moments = torch.rand(PARTS, 2, channels, device="cuda") + 0.5
    weight, bias = torch.rand(2, channels, device="cuda")
    by_sums, by_rows = (chunks, columns, PARTS), (triton.cdiv(rows, tile // block), columns, PARTS)

    def moment_sums(x, y, dy, *_):
        norm_triton._moment_sums[by_sums](x, sums, rows, channels, chunk, **sizes)

    def normalise(x, y, dy, out, _):
        norm_triton._normalise[by_rows](x, dy, out, moments, weight, bias, rows, channels, **flags)

    def gradient_sums(x, y, dy, *_):
        norm_triton._gradient_sums[by_sums](x, y, dy, moments, weight, bias, sums, rows, channels, chunk, **flags)

    def gradients(x, y, dy, dx, d_shortcut):
        norm_triton._gradients[by_rows](x, y, dy, moments, weight, bias, sums, dx, d_shortcut, rows, channels, **flags)

    return {"sums": (moment_sums, gradient_sums), "writes": (normalise, gradients)}["sums" if programs else "writes"]


def sets(channels):
    shape = PARTS * IMAGES, channels, MAPS[channels], MAPS[channels]
    count = max(int(BYTES / (10 * torch.Size(shape).numel())), 4)
    return [[torch.randn(shape, device="cuda").bfloat16().to(memory_format=torch.channels_last) for _ in range(5)]
            for _ in range(count)]  # fmt: skip


def microseconds(launch, maps):
    for each in maps:
        launch(*each)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in maps:
            launch(*each)
    times = []
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1000 * start.elapsed_time(end) / len(maps))
    return min(times)


def compile_one(tile):
    """In a process of its own: fills Triton's cache on disk."""
    for shortcut in (False, True):
        for launch in launches(64, *tile, shortcut):
            launch(*sets(64)[0])


if __name__ == "__main__":
    different = {(tile, bool(programs), warps): (tile, programs, warps) for tile, programs, warps in SUMS + WRITES}
    with ProcessPoolExecutor(8, get_context("spawn")) as pool:
        list(pool.map(compile_one, different.values()))
    for channels, tiles, shortcut in itertools.product(MAPS, (SUMS, WRITES), (False, True)):
        maps = sets(channels)
        times = {}
        for tile in tiles:
            for launch in launches(channels, *tile, shortcut):
                times.setdefault(launch.__name__, []).append((microseconds(launch, maps), "/".join(map(str, tile))))
        for name, found in times.items():
            line = "  ".join(f"{us:.1f} {tile}" for us, tile in sorted(found))
            print(f"{channels:4d} {name:14s} {'with' if shortcut else 'no':4s} shortcut: {line}", flush=True)
