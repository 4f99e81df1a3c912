"""Reports: one document of a finished run, and the forms in which it is written."""
