"""Measure each checkpoint that a training run writes."""
