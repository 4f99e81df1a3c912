"""Measure every checkpoint that a training run writes."""
