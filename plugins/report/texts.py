"""The content of the files that a run and a comparison of finished results write alike."""

from __future__ import annotations

import json

import msgspec

from longctx.fixtures.records.report import JsonReport
from longctx.plugins.report.document import RunSummary


def report_text(flag: str, summary: RunSummary, document: JsonReport) -> str:
    """Return the content of the file of --report-json, --report-md or --report-html.

    JSON is ASCII; raises ValueError for a number that it cannot represent.
    """
    # Each is imported only where it is written: templates take time.
    match flag:
        case "--report-json":
            return json.dumps(msgspec.to_builtins(document), indent=1, allow_nan=False) + "\n"
        case "--report-md":
            from longctx.plugins.report.markdown import markdown

            return markdown(document)
        case _:
            from longctx.plugins.report.html.page import page

            return page(document, summary)
