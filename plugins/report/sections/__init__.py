"""The topics of a report, each with its content in the terminal, in Markdown and in the page."""
