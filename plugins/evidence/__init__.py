"""The mathematics of verdicts: evidence, intervals and estimates. No thresholds, and no words of verdicts."""
