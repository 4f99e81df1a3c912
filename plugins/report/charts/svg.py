"""SVG elements as text. No other Python module writes SVG markup."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape


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
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(_formatted(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    content = "".join(map(escape, children))
    return Markup(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")


def figure(width: int, height: int, *children: Markup, description: str) -> Markup:
    """Return an `<svg>` element that screen readers announce with its description."""
    return element("svg", *children, viewBox=f"0 0 {width} {height}", role="img", aria_label=description)


def bar_figure(width: int, height: int, *children: Markup) -> Markup:
    """Return an `<svg>` element that stretches to its place and is hidden from screen readers.

    The table beside it gives the same numbers as text.
    """
    return element(
        "svg", *children, viewBox=f"0 0 {width} {height}", preserveAspectRatio="none", aria_hidden="true"
    )  # fmt: skip


def points(pairs: Iterable[tuple[float, float]]) -> str:
    """Return (x, y) pairs in the form of the attribute `points`."""
    return " ".join(f"{_formatted(x)},{_formatted(y)}" for x, y in pairs)


def _formatted(value: str | float) -> str:
    return value if isinstance(value, str) else f"{round(value, 2):g}"
