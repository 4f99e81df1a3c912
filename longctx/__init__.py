"""The suite as one command, `longctx`, and as a library: `longctx.measure(model, tokenizer, lengths="4k")`."""

from longctx.measuring import Report, compare_results, measure

__all__ = ["Report", "compare_results", "measure"]
