"""The suite as one command, `longctx`, and as a library: `longctx.measure(model, tokenizer, lengths="4k")`."""

from longctx.measuring import Report, measure

__all__ = ["Report", "measure"]
