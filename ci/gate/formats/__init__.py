"""One file for each family of result files."""
