"""The scores of the metrics of question files, for answers that differ in everything that a rule may look at."""

from collections.abc import Iterator
from itertools import product

from longctx.fixtures import versions
from longctx.fixtures.scoring.question_metrics import METRICS, Expected
from tests.golden.output import Output, digest

OPTIONS = ("a red lamp", "the blue lamp", "both lamps", "no lamp")
LABELS = ("kitchen", "garden", "no", "none", "not known")
# Right answers with articles, capitals, marks, several words, numbers with signs and commas, letters and lists.
REFERENCES = (
    ("The Old Harbour of Bergen, 1814",), ("a lamp", "The Lantern"), ("-1,234.5",), ("42",), ("45%",), ("ACD",),
    ("3, 1, 2",), ("kitchen",), ("    return total + 1",), ("上海的天气",),
)  # fmt: skip
LETTERS = ("A", "B", "C", "D")
SHORT = (
    "a", "B", "C.", "(D)", "**C**", "D and A", "ABD", "ACD", "A, C, D", "none", "No.", "I know", "42", "42.0", "-42",
    "4 2", "+42", "1,234.5", "-1234.5", "-1,234.5", "45", "45%", "about 55 %", "3, 1, 2", "1, 2, 3", "3 1 2", "lamp",
    "A LAMP!", "the lantern", "lamps", "old harbour of bergen 1814", "Bergen's old harbour", "Bergen", "kitchen",
    "the kitchens", "kitchen or garden", "上海", "上海的天气。", "return total + 1", "\n# sum\n    return total",
    "blue lamp", "the blue lamp", "naïve Lantern", "",
)  # fmt: skip
FRAMES = (
    "{}", "The answer is {}", "The correct answer is ({}).", "Answer: {}\nQuestion: A 42 kitchen lamp",
    "I first thought of B, 17 and the garden. So the final answer is {}. The end", "\n\n```\n{}\n```",
)  # fmt: skip


def question_score_outputs() -> Iterator[Output]:
    """Yield the strict scores of every metric, and the published ones where they differ, as digests."""
    answers = [frame.format(text) for frame, text in product(FRAMES, SHORT)]
    for name, metric in METRICS.items():
        # Summaries are scored by libraries that take long.
        others = REFERENCES if metric.is_exact else REFERENCES[:2]
        expected = [
            Expected(references=one, options=OPTIONS, labels=LABELS, question="Which lamp stood in the garden?")
            for one in (*(() if metric.needs == "options" else others), *((letter,) for letter in LETTERS[1:3]))
        ]
        rules = {"strict": metric.score} | ({"published": metric.published} if metric.published is not None else {})
        for mode, rule in rules.items():
            scores = [round(rule(answer, right), 6) for right in expected for answer in answers]
            yield Output(
                name=f"{name} {mode}, {len(scores)} answers",
                version_name=f'QUESTION_METRICS["{name}"]',
                version=versions.QUESTION_METRICS[name],
                value=digest(str(scores)),
            )
