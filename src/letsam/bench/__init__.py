"""Step times of the methods beside those of the plain loop and of other implementations, in one run."""
