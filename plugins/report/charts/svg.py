"""SVG elements as text, and the colours of scores and differences as style classes.

No other Python module writes SVG markup.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

# Cividis (Nuñez, Anderton and Renslow 2018) is equally readable with every kind of colour vision.
CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
SHADES = 20
DIFFERENCE_STEPS = (0.5, 2, 5, 10, 20)
"""Differences in points at which the colour changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear map from values to coordinates of the view box, rounded to tenths of a unit."""

    values: tuple[float, float]
    """The two values whose coordinates are given; they must differ."""

    coordinates: tuple[float, float]
    """The coordinates of these two values."""

    def __call__(self, value: float) -> float:
        first, last = self.values
        start, end = self.coordinates
        return round(start + (end - start) * (value - first) / (last - first), 1)


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element as markup. Children and attribute values are escaped unless they are markup themselves.

    An underscore in an attribute's name becomes a hyphen, and one at its end is dropped: `class_`, `text_anchor`.
    An attribute of None is left out; numbers are rounded to hundredths of a unit.
    """
    written = ""
    for name, value in attributes.items():
        if value is not None:
            shown_name = name.rstrip("_").replace("_", "-")
            written += f' {shown_name}="{escape(_formatted(value))}"'
    content = "".join(map(escape, children))
    return Markup(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")


def figure(width: int, height: int, *children: Markup, description: str) -> Markup:
    """Return an `<svg>` element that screen readers announce with its description."""
    return element("svg", *children, viewBox=f"0 0 {width} {height}", role="img", aria_label=description)


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """Return (x, y) pairs in the form of the attribute `points`."""
    return " ".join(f"{_formatted(x)},{_formatted(y)}" for x, y in pairs)


def _formatted(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"


def shade(score: float) -> int:
    """Return the shade of a score of 0 to 100: an integer from 0 to SHADES."""
    return max(0, min(SHADES, int(score * SHADES / 100)))


def shade_rules() -> str:
    """Return a style rule for every shade: its colour, and black or white text, whichever contrasts more."""
    rules = []
    for number in range(SHADES + 1):
        # A colour is interpolated between the two next to its place on the scale.
        place = number / SHADES * (len(CIVIDIS) - 1)
        low = min(int(place), len(CIVIDIS) - 2)
        first, second = bytes.fromhex(CIVIDIS[low]), bytes.fromhex(CIVIDIS[low + 1])
        share = place - low
        mixed = [round(start + (end - start) * share) for start, end in zip(first, second, strict=True)]
        red, green, blue = mixed
        # Relative luminance and contrast ratio as WCAG 2 defines them.
        luminance = 0.2126 * _linear(red) + 0.7152 * _linear(green) + 0.0722 * _linear(blue)
        against_white, against_black = 1.05 / (luminance + 0.05), (luminance + 0.05) / 0.05
        text = "#fff" if against_white >= against_black else "#000"
        rules.append(f".s{number}{{background:#{red:02x}{green:02x}{blue:02x};color:{text}}}")
    return "\n".join(rules)


def difference_class(points: float) -> str:
    """Return the class of a difference in points: `w1` to `w5` for worse, `b1` to `b5` for better, `d0` for neither."""
    step = sum(abs(points) >= bound for bound in DIFFERENCE_STEPS)
    return "d0" if not step else f"{'w' if points < 0 else 'b'}{step}"


def _linear(channel: int) -> float:
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)
