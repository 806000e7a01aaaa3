"""One thread a process. Because of this file pytest puts the folder on the path, for oracle.py."""

import torch

torch.set_num_threads(1)
