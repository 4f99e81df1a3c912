"""Text of models and files as it may be shown anywhere: nothing in it steers a page, a table or a terminal."""

from __future__ import annotations

import unicodedata

# C0 controls have pictures of their own; other invisible characters are named.
PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
KEPT = "\n\t"


def visible(text: str, most: int | None = None) -> str:
    """The text with controls, marks of direction and lone surrogates as signs that can be read; at most so long.

    Line ends and tabs stay. The result can be encoded and holds no character without a glyph of its own.
    """
    shown = (text if most is None else text[:most]).replace("\r\n", "\n")
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(map(_visible, shown))


def one_line(text: str, most: int) -> str:
    """`visible`, on one line, with an ellipsis where it is longer."""
    words = " ".join(visible(text, 4 * most).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _visible(character: str) -> str:
    if character in KEPT:
        return character
    if ord(character) in PICTURES:
        return PICTURES[ord(character)]
    # Marks of direction, lone surrogates, private and unassigned characters, line and paragraph separators.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
        return f"⟨U+{ord(character):04X}⟩"
    return character
