"""Data sets, each as tensors in memory with a deterministic split."""
