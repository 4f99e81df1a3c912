"""The report as one page: no network, nothing beside the file."""
