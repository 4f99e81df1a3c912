"""Colours of scores and of differences, as style classes."""

from __future__ import annotations

# Cividis (Nuñez, Anderton and Renslow 2018) is equally readable with every kind of colour vision.
CIVIDIS = ("00224e", "123570", "3b496c", "575d6d", "707173", "8a8678", "a59c74", "c3b369", "e1cc55", "fee838")
SHADES = 20
DIFFERENCE_STEPS = (0.5, 2, 5, 10, 20)
"""Differences in points at which the colour changes."""


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
        first, second = (bytes.fromhex(CIVIDIS[index]) for index in (low, low + 1))
        red, green, blue = (round(a + (b - a) * (place - low)) for a, b in zip(first, second, strict=True))
        # Relative luminance and contrast ratio as WCAG 2 defines them.
        luminance = 0.2126 * _linear(red) + 0.7152 * _linear(green) + 0.0722 * _linear(blue)
        text = "#fff" if 1.05 / (luminance + 0.05) >= (luminance + 0.05) / 0.05 else "#000"
        rules.append(f".s{number}{{background:#{red:02x}{green:02x}{blue:02x};color:{text}}}")
    return "\n".join(rules)


def difference_class(points: float) -> str:
    """Return the class of a difference in points: `w1` to `w5` for worse, `b1` to `b5` for better, `d0` for neither."""
    step = sum(abs(points) >= bound for bound in DIFFERENCE_STEPS)
    return "d0" if not step else f"{'w' if points < 0 else 'b'}{step}"


def _linear(channel: int) -> float:
    value = channel / 255
    return value / 12.92 if value <= 0.04045 else float(((value + 0.055) / 1.055) ** 2.4)
