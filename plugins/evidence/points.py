"""The two scales of a score: journals and statistics use 0 to 1, gates and reports use points from 0 to 100."""


def to_points(score: float) -> float:
    """Convert a score from 0 to 1, or a difference of two, to points."""
    return 100 * score


def from_points(points: float) -> float:
    """Convert points to a score from 0 to 1, or to a difference of two."""
    return points / 100
