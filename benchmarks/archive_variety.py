"""How varied the archive's text is: `python -m benchmarks.archive_variety [--seed N] [--data-dir DIR]`.

Of each kind of text: how many of its sentences are distinct, how many another seed writes too, types per token (the
first 50 000 words, then the first 30 000 that begin in lower case, so without names), and words per sentence.
With --data-dir, beside real text: the paragraphs of HotpotQA and the essays.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from fixtures.corpora import load_corpora
from fixtures.corpora.synthetic.archive import case_files, classification, long_documents, ranking_questions
from fixtures.corpora.synthetic.entities import KINDS, World
from fixtures.corpora.synthetic.passages import passage
from fixtures.scoring.synthetic_sentences import split_sentences

PASSAGES = 7500
RANKED = 2000
EXAMPLES = 10_000
PARAGRAPHS = 2000
PARAGRAPHS_OF_ONE = 100
WORDS, LOWER_WORDS = 50_000, 30_000
SCHEMES = ("trec_coarse", "trec_fine", "nlu", "banking77", "clinc150")
WORD = re.compile(r"[^\W\d_]+(?:['-][^\W\d_]+)*")


def passages(seed: int) -> Iterator[str]:
    world = World(seed)
    return (passage(world, world.entity(KINDS[at % len(KINDS)], at)).text for at in range(PASSAGES))


def ranked(seed: int) -> Iterator[str]:
    questions = ranking_questions(seed)
    texts = (each.text for at in range(len(questions)) for each in questions[at].passages[:PARAGRAPHS_OF_ONE])
    return islice(texts, RANKED)


def examples(seed: int) -> Iterator[str]:
    for name in SCHEMES:
        yield from (each.text for each in islice(classification(name, seed).train, EXAMPLES // len(SCHEMES)))


def chronicles(seed: int) -> Iterator[str]:
    documents = long_documents("infbench_qa", seed)
    for at in range(PARAGRAPHS // PARAGRAPHS_OF_ONE):
        yield from documents.text(at)[:PARAGRAPHS_OF_ONE]


def cases(seed: int) -> Iterator[str]:
    files = case_files("multi_lexsum", seed)
    for at in range(PARAGRAPHS // PARAGRAPHS_OF_ONE):
        yield from files.case(at, PARAGRAPHS_OF_ONE).document.split("\n\n")


TEXTS: dict[str, Callable[[int], Iterator[str]]] = {
    "passages": passages,
    "ranked passages": ranked,
    "examples for classification": examples,
    "chronicles": chronicles,
    "case files": cases,
}


def real(data_dir: Path) -> dict[str, list[str]]:
    """The sentences of what a data directory has of HotpotQA and the essays."""
    corpora = load_corpora(str(data_dir))
    found: dict[str, list[str]] = {}
    if corpora.hotpot_path is not None:
        found["Wikipedia (HotpotQA's paragraphs)"] = sentences(iter(corpora.hotpot.paragraphs[:PASSAGES]))
    if corpora.essays_path is not None:
        text = " ".join(map(corpora.haystack.sentence, range(min(PASSAGES, corpora.haystack.size))))
        found["essays (Graham)"] = sentences(iter([text]))
    return found


def sentences(texts: Iterator[str]) -> list[str]:
    return [sentence for text in texts for sentence in split_sentences(text)]


def richness(found: list[str]) -> tuple[float, float, float]:
    """Types per token, the same of words in lower case, and words per sentence."""
    words = [word for sentence in found for word in WORD.findall(sentence)]
    some, lower = words[:WORDS], [word for word in words if word[0].islower()][:LOWER_WORDS]
    return len(set(some)) / len(some), len(set(lower)) / len(lower), len(words) / len(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path)
    asked = parser.parse_args()
    print(
        "| text | distinct sentences | shared with next seed | types per token | without names | words per sentence |"
    )
    print("|---|---|---|---|---|---|")
    for name, made in TEXTS.items():
        found, other = sentences(made(asked.seed)), set(sentences(made(asked.seed + 1)))
        distinct = set(found)
        types, lower, words = richness(found)
        shares = f"{100 * len(distinct) / len(found):.1f} % | {100 * len(distinct & other) / len(distinct):.2f} %"
        print(f"| {name} | {shares} | {types:.3f} | {lower:.3f} | {words:.1f} |", flush=True)
    for name, found in real(asked.data_dir).items() if asked.data_dir is not None else ():
        types, lower, words = richness(found)
        print(f"| {name} | | | {types:.3f} | {lower:.3f} | {words:.1f} |", flush=True)


if __name__ == "__main__":
    main()
