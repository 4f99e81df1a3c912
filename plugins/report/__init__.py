"""Reports: one document built from what came back, and its forms (JSON, JUnit, terminal)."""
