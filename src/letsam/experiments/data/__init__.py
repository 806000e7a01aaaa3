"""Data sets: where they come from, how they are stored, and what turns them into batches."""
