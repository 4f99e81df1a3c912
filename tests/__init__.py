"""Tests of this repository."""
