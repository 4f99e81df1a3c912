"""The thresholds file: its records, and the strict reading of it."""
