"""The answers of frontier tasks, recounted from the text and the question alone by other code than the tasks'."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from longctx.fixtures.records import Sample
from longctx.fixtures.tasks.frontier.counting import subjects
from longctx.fixtures.tasks.frontier.hidden_facts import _associations
from longctx.fixtures.tasks.frontier.suite import people
from longctx.fixtures.tasks.sample_spec import Draft
from longctx.fixtures.words import contains_words

Answers = tuple[str, ...]
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
RECORD = re.compile(r"^Record (\d+)\. (.*) Who keeps the (most|fewest) \w+\?$")
CODE = re.compile(r"^The code of record (\d+) is (\d+)\.$")
LINE = re.compile(r"^Date: (.*?) \|\| User: (\d+) \|\| Instance: (.*?)(?: \|\| Label: (\w+))?$")
FACTS = {
    r"What is (?P<way>\w+) of the (?P<place>\w+)\?": r"The (\w+) is {way} of the {place}\.",
    r"What is the (?P<place>\w+) (?P<way>\w+) of\?": r"The {place} is {way} of the (\w+)\.",
    r"Who gave the (?P<thing>\w+) to (?P<to>\w+)\?": r"(\w+) gave the {thing} to {to}\.",
    r"What did (?P<by>\w+) give to (?P<to>\w+)\?": r"{by} gave the (\w+) to {to}\.",
    r"To whom did (?P<by>\w+) give the (?P<thing>\w+)\?": r"{by} gave the {thing} to (\w+)\.",
}

MAKER = re.compile(r"the (?:founder|proposer|leader|author) of (.*)")
NAME = re.compile(r"[A-Z]\w+ [A-Z]\w+")
DOCUMENT = re.compile(r"Document (\d+):\n(.*)")


def gives_answer_once(task: str, made: Sample | Draft) -> bool:
    """Return True if the text of a sample gives its answer, and no other one."""
    answers = recounted(task, made.context, made.question)
    if task in ("ladder_qa_medium", "ladder_qa_hard"):
        stating = [
            number
            for number, text in DOCUMENT.findall(made.context)
            if any(contains_words(text, reference) for reference in made.references)
        ]
        return len(stating) == 1 and stating[0] in answers
    if task.startswith("mrcr_") and set(made.references) & set(made.distractors):
        return False
    expected = (made.references[1].partition(". ")[2],) if task == "not_in_text" else made.references
    return sorted(answers) == sorted(expected)


def recounted(task: str, context: str, question: str) -> Answers:
    """Return all answers that the text gives; raise KeyError for a task without a recount."""
    kind = next(kind for kind in RECOUNTS if task.startswith(kind))
    return RECOUNTS[kind](task, context, question)


def edges_of(context: str) -> list[tuple[str, str]]:
    """Return the edges of a graph in the order of the text."""
    return [(source, target) for source, target in re.findall(r"^(\w{10}) -> (\w{10})$", context, re.MULTILINE)]


def _graph(task: str, context: str, question: str) -> Answers:
    edges, node = edges_of(context), re.findall(r"\w{10}", question)[0]
    if "parents" in task:
        return tuple(dict.fromkeys(source for source, target in edges if target == node))
    reached, last = {node}, {node}
    for _ in range(int(re.findall(r"exactly (\d)", question)[0])):
        last = {target for source, target in edges if source in last} - reached
        reached |= last
    return tuple(sorted(last))


def _conversation(task: str, context: str, question: str) -> Answers:
    turns = re.findall(r"^User: (.*)\nAssistant: (.*)$", context, re.MULTILINE)
    ordinal, form, topic = re.findall(r"to the (\w+) (.*) about (.*)\. Do not", question)[0]
    replies = [reply for request, reply in turns if request == f"Write a {form} about {topic}."]
    return tuple(replies[ORDINALS.index(ordinal) :][:1])


def _record(task: str, context: str, question: str) -> Answers:
    number = re.findall(r"\d{7}", question)[0]
    own = [item for item in context.split("\n\n") if re.search(rf"\b{number}\b", item)]
    if task.endswith("basic"):
        return tuple(match[2] for item in own if (match := CODE.match(item)))
    if task.endswith("easy"):
        return tuple(own)
    if "_mv_" in task:
        words = [word for word in question.lower().split() if word in ORDINALS and word != "first"]
        named = words or ["first"]
        return tuple(own[ORDINALS.index(named[-1]) :][:1])
    answers = []
    for match in filter(None, map(RECORD.match, own)):
        counts = {name: int(count) for name, count in re.findall(r"(\w+) keeps (\d+)", match[2])}
        answers.append((max if match[3] == "most" else min)(counts, key=counts.__getitem__))
    return tuple(answers)


def _association(task: str, context: str, question: str) -> Answers:
    return tuple(
        name
        for one in _associations()
        if question
        in (
            f"Which person works in {one.city}?",
            f"Which person works in {one.country}?",
            f"Which person {one.cue}?",
        )
        for name in re.findall(rf"(\w+) {re.escape(one.cue)}\.", context)
    )


@cache
def _forms() -> tuple[tuple[re.Pattern[str], str], ...]:
    slots = {"person": r"\w+", "hour": r"\d+ o'clock"}
    texts = ((label, form) for label, forms in subjects().items() for form in forms)
    return tuple(
        (re.compile("".join(slots.get(part, re.escape(part)) for part in re.split(r"[{}]", form))), label)
        for label, form in texts
    )


def label_of(text: str) -> str:
    """Return the subject of a message by its form; raise ValueError unless exactly one fits."""
    [label] = {label for pattern, label in _forms() if pattern.fullmatch(text)}
    return label


def messages_of(context: str) -> list[tuple[str, str, str]]:
    """Return date, user and label of every message; raise AssertionError if a printed label is not the subject."""
    rows = []
    for match in filter(None, map(LINE.match, context.splitlines())):
        day, user, text, printed = match.groups()
        label = label_of(text)
        assert printed in (None, label)
        rows.append((day, user, label))
    return rows


def _label_in(question: str) -> str:
    return next(label for label in subjects() if re.search(rf"\b{label}\b", question))


def _messages(task: str, context: str, question: str) -> Answers:
    label = _label_in(question)
    own = [row for row in messages_of(context) if row[2] == label]
    if task.startswith("count_labels"):
        return (str(len(own)),)
    counts = Counter(row[task.startswith("count_users")] for row in own)
    return tuple(key for key, count in counts.items() if count == max(counts.values()))


def _world(task: str, context: str, question: str) -> Answers:
    for pattern, fact in FACTS.items():
        if match := re.fullmatch(pattern, question):
            return tuple(re.findall(fact.format(**match.groupdict()), context))
    at: dict[str, str] = {}
    held: dict[str, str] = {}
    seen: dict[str, list[str]] = {}
    for actor, verb, what in re.findall(r"(\w+) (went to|took|dropped) the (\w+)\.", context):
        if verb == "took":
            held[what] = actor
        elif verb == "dropped":
            held.pop(what, None)
        else:
            at[actor] = what
        for thing, holder in held.items():
            if holder in at and seen.setdefault(thing, [])[-1:] != [at[holder]]:
                seen[thing].append(at[holder])
    if before := re.fullmatch(r"Where was the (\w+) before the (\w+)\?", question):
        places = seen.get(before[1], [])
        return tuple(places[at - 1] for at, place in enumerate(places) if at and place == before[2])
    if carried := re.fullmatch(r"Where is the (\w+)\?", question):
        return tuple(seen.get(carried[1], [])[-1:])
    return tuple(place for actor, place in at.items() if question == f"Where is {actor}?")


def _program(task: str, context: str, question: str) -> Answers:
    names: dict[str, Any] = {"items": []}
    for line in context.splitlines():
        if line.startswith("items"):
            exec(line, {}, names)
    return (str(eval(question, {}, names)),)


def _documents(task: str, context: str, question: str) -> Answers:
    """Return the numbers of the documents with the text, or of those of a work and of its maker."""
    documents = DOCUMENT.findall(context)
    if task.endswith("basic"):
        return tuple(number for number, text in documents if text == question)
    [words] = (match.split() for match in MAKER.findall(question))
    works: list[tuple[str, str]] = []
    # The name of the work is the longest run of words that a document has.
    for end in range(len(words), 0, -1):
        name = " ".join(words[:end]).rstrip("?").lower()
        if works := [document for document in documents if name in document[1].lower()]:
            break
    [(work, text)] = works
    names = {name for name in NAME.findall(text) if name.split()[0] in people()}
    makers = [number for number, other in documents if number != work and names & set(NAME.findall(other))]
    return (work, *makers)


def _options(task: str, context: str, question: str) -> Answers:
    person = re.findall(r"does (\w+) live", question)[0]
    return tuple(re.findall(rf"{person} lives in (\w+)\.", context)) or ("The text does not say",)


def _route(task: str, context: str, question: str) -> Answers:
    legs = dict(re.findall(r"From (\w+) drive to (\w+)\.", context))
    start, stops = re.findall(r"Start at (\w+) and .* next (\d+) stops", question)[0]
    answer = [start]
    while len(answer) <= int(stops):
        answer.append(legs[answer[-1]])
    return tuple(answer[1:])


def _path(task: str, context: str, question: str) -> Answers:
    onward = {start: (by, end) for by, start, end in re.findall(r"A (\w+) goes from (\w+) to (\w+)\.", context)}
    town, last = re.findall(r"from (\w+) to (\w+),", question)[0]
    lines = []
    while town != last:
        by, end = onward[town]
        lines.append(f"From {town}, take a {by} to {end}.")
        town = end
    return tuple(lines)


def _countdown(task: str, context: str, question: str) -> Answers:
    """Return the first solution in the order that the prompt prescribes."""
    number = re.findall(r"problem (\d+)", question)[0]
    [(shown, target)] = re.findall(rf"^Problem {number}: \[(.*)\], target (\d+)$", context, re.MULTILINE)
    return _solution([int(one) for one in shown.split(", ")], int(target))


def _solution(numbers: list[int], target: int) -> Answers:
    for first in range(len(numbers)):
        for second in range(first + 1, len(numbers)):
            high, low = max(numbers[first], numbers[second]), min(numbers[first], numbers[second])
            rest = numbers[:first] + numbers[first + 1 : second] + numbers[second + 1 :]
            for sign in "+-*/":
                if sign == "/" and (low == 0 or high % low):
                    continue
                result = {"+": high + low, "-": high - low, "*": high * low, "/": high // (low or 1)}[sign]
                found = _solution([result, *rest], target) if rest and result < 2000 else ()
                if found or (not rest and result == target):
                    return f"{high} {sign} {low} = {result}", *found
    return ()


def _beliefs(task: str, context: str, question: str) -> Answers:
    person, thing = re.findall(r"Where does (\w+) believe the (\w+)", question)[0]
    room = spot = belief = ""
    lines = []
    for number, event in enumerate(re.findall(r"^Step \d+: (.*)$", context, re.MULTILINE)):
        if not re.search(rf"\b({person}|{thing})\b", event):
            continue
        if moved := re.search(rf"{person} (?:is in|goes to) the (\w+)\.", event):
            room = moved[1]
        if carried := re.search(rf"{thing} (?:is on|to) the (\w+'s \w+)\.", event):
            spot = carried[1]
        seen = spot.startswith(f"{room}'s")
        belief = spot if seen else belief or "none"
        lines.append(
            f"- Step {number}: {person} in the {room}; {thing} on the {spot}; "
            f"seen: {'yes' if seen else 'no'}; belief: {belief}"
        )
    return tuple(lines)


def _rows(task: str, context: str, question: str) -> Answers:
    city = re.findall(r"city (\w+),", question)[0]
    cells = [re.findall(r"<td>(.*?)</td>", line) for line in context.splitlines()]
    return tuple(
        "\t".join(cell or "N/A" for cell in (name, trade, year)) for name, town, year, trade in cells if town == city
    )


def _arithmetic(task: str, context: str, question: str) -> Answers:
    number = re.findall(r"problem (\d+)", question)[0]
    text = re.findall(rf"^Problem {number}\. (.*)$", context, re.MULTILINE)[0]
    value = int(re.findall(r"holds (\d+)", text)[0])
    for amount, change in re.findall(r"(\d+) (more are put in|are taken out|times as many)", text):
        value = {"m": value + int(amount), "a": value - int(amount), "t": value * int(amount)}[change[0]]
    return (str(value),)


RECOUNTS: Mapping[str, Callable[[str, str, str], Answers]] = {
    "graph_": _graph,
    "mrcr_": _conversation,
    "ladder_mk": _record,
    "ladder_mv": _record,
    "ladder_qa": _documents,
    "association": _association,
    "count_": _messages,
    "world_": _world,
    "latent_list": _program,
    "not_in_text": _options,
    "route": _route,
    "path_traversal": _path,
    "countdown": _countdown,
    "belief_tracking": _beliefs,
    "table_extraction": _rows,
    "problem_": _arithmetic,
}
