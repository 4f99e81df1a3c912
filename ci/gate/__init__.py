"""Gate two finished sets of results: two files in, a verdict and an exit code out."""
