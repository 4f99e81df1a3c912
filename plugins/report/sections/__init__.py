"""The topics of a report, each with what it shows in the terminal, in Markdown and in the page."""
