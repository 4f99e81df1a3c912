"""Texts of models and files in a form that can be shown anywhere: no character can change a page or a terminal."""

from __future__ import annotations

import unicodedata

# Unicode has a picture for every C0 control character; other invisible characters are written as their code point.
PICTURES = {code: chr(0x2400 + code) for code in range(0x20)} | {0x7F: "\u2421"}
LINE_BREAKS_AND_TABS = "\n\t"
# Controls, marks of direction, lone surrogates, private and unassigned characters, line and paragraph separators.
INVISIBLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def visible(text: str, most: int | None = None) -> str:
    """Return the text with every invisible character replaced by visible ones; line breaks and tabs stay.

    With `most`, the text is first cut to so many characters. The result can always be encoded.
    """
    shown = (text if most is None else text[:most]).replace("\r\n", "\n")
    if shown.isascii() and shown.isprintable():
        return shown
    return "".join(map(_visible, shown))


def one_line(text: str, most: int) -> str:
    """Return the visible text on one line of at most `most` characters, ending with an ellipsis if it was longer."""
    words = " ".join(visible(text, 4 * most).split())
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _visible(character: str) -> str:
    if character in LINE_BREAKS_AND_TABS:
        return character
    if ord(character) in PICTURES:
        return PICTURES[ord(character)]
    if unicodedata.category(character) in INVISIBLE_CATEGORIES:
        return f"⟨U+{ord(character):04X}⟩"
    return character
