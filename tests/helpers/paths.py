"""Places of this repository that tests read."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
TABLES = REPOSITORY / "tests" / "tables"
