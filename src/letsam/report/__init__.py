"""The HTML report of a comparison: one file, no network."""

from .page import render, write_report

__all__ = ["render", "write_report"]
