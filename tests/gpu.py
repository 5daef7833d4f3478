"""Whether the tests see the machine's GPU: those about one do, all others run as on a machine without."""

import os

import torch

THERE = torch.cuda.is_available()
_VISIBLE = os.environ.get("CUDA_VISIBLE_DEVICES")

if THERE:
    torch.cuda.init()  # what is hidden from here on is hidden from other processes, and from who asks
    torch.cuda.device_count()


def hide():
    """As on a machine without a GPU, here and in processes that are started."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    torch.cuda.is_available = lambda: False


def show():
    """As the machine is."""
    if _VISIBLE is None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    else:
        os.environ["CUDA_VISIBLE_DEVICES"] = _VISIBLE
    torch.cuda.is_available = lambda: THERE
