"""Measure how varied the archive's text is: `python -m benchmarks.archive_variety [--seed N] [--data-dir DIR]`.

For every kind of text: the share of distinct sentences, the share that the next seed writes too, types per token (of
the first 50 000 words, then of the first 30 000 that begin in lower case and so are no names), and words per sentence.
With --data-dir also the figures of real text: the paragraphs of HotpotQA and the essays.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from longctx.fixtures.corpora import load_corpora
from longctx.fixtures.corpora.synthetic.archive import classification, long_documents, ranking_questions, summary_cases
from longctx.fixtures.corpora.synthetic.passage_questions import _write_passage
from longctx.fixtures.corpora.synthetic.world import KINDS, World
from longctx.fixtures.scoring.synthetic import split_sentences

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
    return (_write_passage(world, world.entity(KINDS[number % len(KINDS)], number)).text for number in range(PASSAGES))


def ranked(seed: int) -> Iterator[str]:
    questions = ranking_questions(seed)
    ranked_passages = (questions[index].passages[:PARAGRAPHS_OF_ONE] for index in range(len(questions)))
    return islice((passage.text for some in ranked_passages for passage in some), RANKED)


def examples(seed: int) -> Iterator[str]:
    for name in SCHEMES:
        yield from (example.text for example in islice(classification(name, seed).train, EXAMPLES // len(SCHEMES)))


def chronicles(seed: int) -> Iterator[str]:
    documents = long_documents("infbench_qa", seed)
    for index in range(PARAGRAPHS // PARAGRAPHS_OF_ONE):
        yield from documents.text(index)[:PARAGRAPHS_OF_ONE]


def cases(seed: int) -> Iterator[str]:
    files = summary_cases("multi_lexsum", seed)
    for index in range(PARAGRAPHS // PARAGRAPHS_OF_ONE):
        yield from files.case(index, PARAGRAPHS_OF_ONE).document.split("\n\n")


TEXTS: dict[str, Callable[[int], Iterator[str]]] = {
    "passages": passages,
    "ranked passages": ranked,
    "examples for classification": examples,
    "chronicles": chronicles,
    "case files": cases,
}


def real(data_dir: Path) -> dict[str, list[str]]:
    """Return the sentences of HotpotQA and of the essays, as far as the data directory has them."""
    corpora = load_corpora(str(data_dir))
    texts: dict[str, list[str]] = {}
    if corpora.hotpot_path is not None:
        texts["Wikipedia (HotpotQA's paragraphs)"] = sentences(iter(corpora.hotpot.paragraphs[:PASSAGES]))
    if corpora.essays_path is not None:
        text = " ".join(map(corpora.haystack.sentence, range(min(PASSAGES, corpora.haystack.size))))
        texts["essays (Graham)"] = sentences(iter([text]))
    return texts


def sentences(texts: Iterator[str]) -> list[str]:
    return [sentence for text in texts for sentence in split_sentences(text)]


def richness(sentences: list[str]) -> tuple[float, float, float]:
    """Return types per token, types per token of words in lower case, and words per sentence."""
    words = [word for sentence in sentences for word in WORD.findall(sentence)]
    some, lower = words[:WORDS], [word for word in words if word[0].islower()][:LOWER_WORDS]
    return len(set(some)) / len(some), len(set(lower)) / len(lower), len(words) / len(sentences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    print(
        "| text | distinct sentences | shared with next seed | types per token | without names | words per sentence |"
    )
    print("|---|---|---|---|---|---|")
    for name, generate in TEXTS.items():
        own, other = sentences(generate(options.seed)), set(sentences(generate(options.seed + 1)))
        distinct = set(own)
        types, lower, words = richness(own)
        shares = f"{100 * len(distinct) / len(own):.1f} % | {100 * len(distinct & other) / len(distinct):.2f} %"
        print(f"| {name} | {shares} | {types:.3f} | {lower:.3f} | {words:.1f} |", flush=True)
    for name, own in real(options.data_dir).items() if options.data_dir is not None else ():
        types, lower, words = richness(own)
        print(f"| {name} | | | {types:.3f} | {lower:.3f} | {words:.1f} |", flush=True)


if __name__ == "__main__":
    main()
