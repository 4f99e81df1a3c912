"""Recorded outputs that may change only together with their versions."""
