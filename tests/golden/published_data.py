"""Small invented data sets, in the published layouts of HELMET and RULER. They never change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from longctx.fixtures.corpora.published.hub_sets import NLU_SEED

WORDS = """
    amber barge candle drift ember ferry gravel harbor island jetty kettle lantern
    meadow needle orchard pebble quarry ribbon saddle timber urchin valley willow yarrow
""".split()  # noqa: SIM905  # a list of literals would take a line per word
QUESTIONS = 3
PASSAGES = 60
NAMES = ("Ida Marsh", "Tom Reed", "Una Holt")
TOWNS = ("Brassmere", "Calder", "Dunlow")
Record = dict[str, Any]


def write_published_data(directory: Path) -> None:
    """Write the files of every published data set."""
    for name, data in _files():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".jsonl"):
            path.write_text("".join(json.dumps(record) + "\n" for record in data), encoding="utf-8")
        else:
            path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    _write_classification_sets(directory)
    _write_narrativeqa(directory / "deepmind/narrativeqa/data")


def _files() -> Iterator[tuple[str, Any]]:
    yield from _ruler_files()
    yield from _passage_files()
    yield from _citation_files()
    yield from _document_files()


def _sentence(key: int, words: int = 12) -> str:
    chosen = [WORDS[(key * 7 + at * (5 + key % 11)) % len(WORDS)] for at in range(words)]
    return f"{' '.join(chosen).capitalize()} {key}."


def _text(key: int, sentences: int) -> str:
    return " ".join(_sentence(key * 100 + at) for at in range(sentences))


def _ruler_files() -> Iterator[tuple[str, Any]]:
    yield "essays/PaulGrahamEssays.json", {"text": _text(1, 500)}
    paragraphs = [
        {
            "context": f"The mill of {town} burned in {1801 + at}. {_text(at, 3)}",
            "qas": [
                {"id": f"s{at}", "question": f"When did {town}'s mill burn?", "answers": [{"text": str(1801 + at)}]}
            ],
        }
        for at, town in enumerate((*TOWNS, *(f"Town{number}" for number in range(40))))
    ]
    yield "qa/squad-dev-v2.0.json", {"version": "v2.0", "data": [{"title": "Mills", "paragraphs": paragraphs}]}
    yield (
        "qa/hotpotqa.json",
        [
            {
                "_id": f"h{at}",
                "question": f"In which town was the builder of mill {at} born?",
                "answer": f"Upper{at}",
                "context": [
                    [f"Mill {at}", [f"Builder{at} built mill {at}.", f" {_sentence(at)}"]],
                    [f"Builder{at}", [f"Builder{at} was born in Upper{at}."]],
                    [f"Fog {at}", [_text(at, 2)]],
                ],
                "supporting_facts": [[f"Mill {at}", 0], [f"Builder{at}", 0]],
            }
            for at in range(20)
        ],
    )
    whole = [
        {"index": at, "input": f"Track. {_sentence(at)} Answer: The names are", "outputs": ["AAAAA", f"BBBB{at}"]}
        for at in range(2)
    ]
    yield "ruler/vt/validation_4096.jsonl", [row | {"answer_prefix": "The names are"} for row in whole]
    parts = {
        "context": _text(3, 6),
        "query": "pale-stone",
        "type_needle_v": "numbers",
        "answer": ["7654321", "1234567"],
    }
    yield "ruler/niah_multivalue/validation_8192.jsonl", [parts, parts | {"query": "grey-stone"}]


def _passages(question: int) -> list[Record]:
    return [
        {"id": f"p{question}-{at}", "title": f"Title {at}", "text": _text(question * 1000 + at, 2)}
        for at in range(PASSAGES)
    ]


def _gold(question: int) -> Record:
    text = f"The mill of {NAMES[question]} stands in {TOWNS[question]}."
    return {"id": f"g{question}", "title": f"Mill {question}", "text": text}


def _kilt(count: int, passages: int = PASSAGES, **more: Any) -> list[Record]:
    """Return six lines for every question, with the gold passage at six ranks."""
    return [
        {
            "question": f"Where does the mill of {NAMES[question]} stand?",
            "answers": [TOWNS[question]],
            "ctxs": [*others[:place], _gold(question), *others[place:]],
            "depth": depth / 5,
            **more,
        }
        for question in range(count)
        for others in [_passages(question)[:passages]]
        for depth in range(6)
        for place in [round(depth * len(others) / 5)]
    ]


def _passage_files() -> Iterator[tuple[str, Any]]:
    for name in ("nq", "triviaqa"):
        yield f"kilt/{name}-dev-multikilt_1000_k61_dep6.jsonl", _kilt(QUESTIONS)
    yield "kilt/nq-train-multikilt_1000_k3_dep6.jsonl", _kilt(2, passages=2)
    yield "kilt/popqa_test_1000_k61_dep6.jsonl", _kilt(QUESTIONS, s_pop=12)
    yield (
        "kilt/hotpotqa-dev-multikilt_1000_k62_dep3.jsonl",
        [
            {
                "id": f"h{question}",
                "question": f"In which town does the mill that {NAMES[question]} owns stand?",
                "answers": [TOWNS[question]],
                "ctxs": [*turned, _gold(question), evidence] if order else [evidence, _gold(question), *turned],
                "positive_ctxs": [_gold(question), evidence],
            }
            for question in range(QUESTIONS)
            for evidence in [{"id": f"e{question}", "title": "Owner", "text": f"{NAMES[question]} owns a mill."}]
            for order, turned in enumerate((_passages(question), _passages(question)[::-1]))
        ],
    )
    ranked = [
        {"id": str(1000 * query + at), "title": "", "text": _text(query * 31 + at, 2), "label": at % 4}
        for query in range(QUESTIONS)
        for at in range(PASSAGES)
    ]
    yield (
        "msmarco/test_reranking_data_k60_dep3.jsonl",
        [
            {"qid": query, "query": f"query {WORDS[query]}", "ctxs": turned}
            for query in range(QUESTIONS)
            for shown in [ranked[query * PASSAGES : (query + 1) * PASSAGES]]
            for turned in (shown, shown[::-1], shown[30:] + shown[:30])
        ],
    )
    objects = [{f"k{number}-{at}": f"v{number}-{at * 37 % 1000}" for at in range(130)} for number in range(QUESTIONS)]
    yield (
        "json_kv/test_k130_dep6.jsonl",
        [
            {
                "context": f"JSON data:\n{json.dumps(pairs)}",
                "question": f"k{number}-{at}",
                "answer": pairs[f"k{number}-{at}"],
            }
            for number, pairs in enumerate(objects)
            for at in range(0, 130, 24)
        ],
    )


def _citation_files() -> Iterator[tuple[str, Any]]:
    docs = [[_gold(question), *_passages(question)] for question in range(QUESTIONS)]
    retrieved = [{"sample_id": f"q{question}", "docs": docs[question]} for question in range(QUESTIONS)]
    yield (
        "alce/asqa_eval_gtr_top2000.json",
        [
            row
            | {
                "question": f"Who built mill {at}?",
                "qa_pairs": [{"short_answers": [NAMES[at]]}, {"short_answers": ["Pell"]}],
            }
            for at, row in enumerate(retrieved)
        ],
    )
    yield (
        "alce/qampari_eval_gtr_top2000.json",
        [
            row | {"question": f"Which mills did {NAMES[at]} build?", "answers": [[TOWNS[at], "T"], ["Pell mill"]]}
            for at, row in enumerate(retrieved)
        ],
    )
    for name, answer in (("asqa", "Ida built it [1]. Tom sold it [2]."), ("qampari", "Calder [1], Dunlow [2]")):
        demos = [{"question": f"Who, {at}?", "answer": answer, "docs": _passages(at)[:2]} for at in range(3)]
        yield f"prompts/{name}_revised.json", {"demos": demos}


def _write_classification_sets(directory: Path) -> None:
    train = [(WORDS[at % 5], _sentence(at, 6)) for at in range(300)]
    test = [(WORDS[at % 5], _sentence(at, 6)) for at in range(1000, 1020)]
    for part, pairs in (("train", train), ("test", test)):
        texts, labels = [text for _, text in pairs], [label for label, _ in pairs]
        coarse = [label.upper() for label in labels]
        fine = [f"{label}:x{len(text) % 3}" for label, text in zip(coarse, texts, strict=True)]
        trec = {"text": texts, "coarse_label": coarse, "fine_label": fine}
        _write_table(directory / f"CogComp/trec/{part}.parquet", trec)
        _write_table(directory / f"PolyAI/banking77/{part}.parquet", {"text": texts, "label": labels})
        split, stray = ("train", "fog") if part == "train" else ("validation", "mist")
        clinc = {"text": [*texts, stray], "intent": [*labels, "oos"]}
        _write_table(directory / f"clinc/clinc_oos/plus/{split}.parquet", clinc)
    _write_nlu(directory / "xingkunliuxtracta/nlu_evaluation_data/train.parquet", train, test)


def _write_nlu(path: Path, train: list[tuple[str, str]], test: list[tuple[str, str]]) -> None:
    """Write one table that is split into these parts, in this order."""
    import datasets

    size = len(train) + len(test)
    places = datasets.Dataset.from_dict({"at": range(size)})
    parts = places.train_test_split(test_size=len(test) / size, seed=NLU_SEED, load_from_cache_file=False)
    rows = dict(zip([*parts["train"]["at"], *parts["test"]["at"]], [*train, *test], strict=True))
    labels = [f"home_{rows[at][0]}" for at in range(size)]
    _write_table(path, {"text": [rows[at][1] for at in range(size)], "label": labels})


def _write_table(path: Path, columns: dict[str, list[str]]) -> None:
    import datasets

    path.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(columns).to_parquet(path)


def _document(key: int) -> str:
    return "\n".join(_text(key * 10 + at, 8) for at in range(40))


def _long_document(key: int, characters: int) -> str:
    """Return a document of so many characters, repeated from the second copy on."""
    text = _document(key)
    return "\n".join([text] * -(-characters // len(text)))


def _document_files() -> Iterator[tuple[str, Any]]:
    def book(key: int, **more: Any) -> Record:
        return {"id": key, "context": _document(key), "input": f"Who owns mill {key}?", "options": []} | more

    yield "infbench/longbook_qa_eng.jsonl", [book(at, answer=[NAMES[at]]) for at in range(QUESTIONS)]
    yield (
        "infbench/longbook_choice_eng.jsonl",
        [book(at, answer=[NAMES[at]], options=[*NAMES, "Per Lund"]) for at in range(QUESTIONS)],
    )
    yield "infbench/longbook_sum_eng.jsonl", [book(at, answer=[_text(at, 3)]) for at in range(QUESTIONS)]
    yield (
        "infbench/longbook_sum_eng_keypoints.jsonl",
        [{"id": at, "keypoints": [_sentence(at), _sentence(at + 1)]} for at in range(QUESTIONS)],
    )
    yield (
        "multi_lexsum/multi_lexsum_val.jsonl",
        [
            {
                "id": f"c{at}",
                "sources": [_long_document(at, 230_000), _text(at, 9)],
                "summary/long": _text(at, 5),
                "summary/short": _text(at, 2),
                "summary/short_keypoints": [_sentence(at)],
            }
            for at in range(QUESTIONS)
        ],
    )


def _write_narrativeqa(folder: Path) -> None:
    import datasets

    folder.mkdir(parents=True)
    for split in ("test", "train"):
        rows = [
            {
                "document": {"id": f"d{at}", "text": _long_document(at, 450_000)},
                "question": {"text": f"Who owns mill {at} in {split}?"},
                "answers": [{"text": NAMES[at]}, {"text": NAMES[at].split()[0]}],
            }
            for at in range(QUESTIONS)
        ]
        datasets.Dataset.from_list(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
