"""One thread a process; Triton's kernels interpreted where there is no GPU. Because of this file pytest puts the folder
on the path, for oracle.py."""

import os

import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
