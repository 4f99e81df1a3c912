"""Turn the failed checkpoints of a watch into alerts, one for each step at which a run became worse."""
