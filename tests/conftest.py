"""One thread per test process: the suite runs one process per core, and small tensors gain nothing from more."""

import torch

torch.set_num_threads(1)
