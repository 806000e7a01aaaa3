"""letsam inside other training loops; each framework is imported by its own module alone."""
