"""Name the part of a bad checkpoint that carries its loss."""
