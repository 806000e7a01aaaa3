"""Sharpness-aware training without a radius to tune."""
