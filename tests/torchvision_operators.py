"""A plugin of pytest with which torchvision's wheel can be imported beside a CPU build of torch.

The wheel's own operators are compiled for CUDA and do not load there, and its import fails as it looks for two of them.
Nothing in the tests calls them, so they are declared by name.
"""

import torch

if torch.__version__.endswith("+cpu"):
    DECLARED = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        DECLARED.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
