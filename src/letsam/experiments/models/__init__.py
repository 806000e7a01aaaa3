"""Models of the experiments."""
