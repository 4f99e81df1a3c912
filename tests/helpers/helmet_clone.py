"""A directory of the form of a clone of HELMET, whose functions build templates as HELMET's do, in our words."""

import json
from pathlib import Path

SOURCE = """
raise RuntimeError("this file is parsed and never executed")


def load_qa(dataset, path, demo_path, max_test_samples=None, popularity_threshold=None, shots=0):
    if "nq_bad" in dataset:
        user_template = "Not this one.\\n\\n{demos}{context}\\n\\nAsked: {question}"
    else:
        user_template = "Short answers please.\\nReply: [reply]\\n\\n{demos}{context}\\n\\nAsked: {question}"
    system_template = "Reply:"
    prompt_template = user_template + "\\n" + system_template
    demo_template = "{documents}\\n\\nAsked: {question}\\nReply: {answer}"
    passage_template = "Page (Head: {title}): {text}"

    def update(sample):
        demo_text = ""
        if shots > 0:
            demo_text = "\\n\\n".join([demo_template.format(**d, documents="\\n\\n".join([passage_template.format(**c) for c in d["ctxs"]]), answer=d["answers"][0]) for d in demos]) + "\\n\\n"
        passage_text = ""
        if len(sample["ctxs"]) > 0:
            passage_text = "\\n\\n".join([passage_template.format(**c) for c in sample["ctxs"]])
        return {"demos": demo_text, "context": passage_text, "answer": sample["answers"]}

    return {"data": data.map(update), "prompt_template": prompt_template}


def load_json_kv(path, shots, max_test_samples=None, seed=42):
    user_template = "{context}\\n\\nGive the value of the name above.\\n\\n{demos}Name: {question}"
    system_template = "Its value:"
    prompt_template = user_template + "\\n" + system_template
    demo_template = "Name: {key}\\nIts value:{value}"
    data = data.map(lambda x: {
        "demos": "\\n\\n".join([demo_template.format(key=key, value=" "+value) for key, value in x["demos"][:shots]]) + ("\\n\\n" if shots > 0 else ""),
        "k": x["num_kvs"],
    })
    return {"data": data, "prompt_template": prompt_template}


def load_narrativeqa(dataset, path=None, shots=0, max_samples=None, seed=42):
    user_template = "A tale and a question follow.\\n\\n{demo}{context}\\n\\nAsked: {question}"
    system_template = "Reply:"
    prompt_template = user_template + "\\n" + system_template
    if not path:
        data = all_data["test"].map(lambda example: {
            "context": example["document"]["text"],
            "question": example["question"]["text"],
            "demo": "" if shots == 0 else "Such as {this}:\\n\\n" + "\\n\\n".join([f"Asked: {ex['question']['text']}\\nReply: {ex['answers'][0]['text']}" for ex in all_data["train"]]) + "\\n\\nAnd now:\\n\\n"
        })
    return {"data": data, "prompt_template": prompt_template}


def load_multi_lexsum(dataset, path=None, shots=0, max_samples=None, seed=42):
    user_template = "Sum up the case.\\n\\n{demo}Papers:\\n{context}\\n\\nSum it up."
    system_template = "In short:"
    prompt_template = user_template + "\\n\\n" + system_template
    all_data = all_data.map(lambda x: {
        "context": "\\n\\n".join(x["sources"]),
        "demo": "" if shots == 0 else "Others:\\n\\n" + "\\n\\n".join(["In short: {}".format(ex["summary/short"]) for ex in all_data]) + "\\n\\nNow this one.\\n",
        "question": "",
    })
    return {"data": all_data, "prompt_template": prompt_template}


def load_msmarco_rerank(path, demo_path=None, max_test_samples=None, shots=0, seed=42):
    user_template = "Put all pages in order.\\nOrder: ID3 > ID1 > ID2\\n\\n{demos}{context}\\n\\nSought: {question}"
    system_template = "Order:"
    prompt_template = user_template + "\\n" + system_template

    def update(sample, demos):
        passage_text = ""
        passage_template = "<{id}> Page (Head: {title}): {text}" if "title" in sample["ctxs"][0] else "<{id}> Page: {text}"
        passage_text = "\\n\\n".join([passage_template.format(**c) for c in sample["ctxs"]])
        demo_text = ""
        if shots > 0:
            for d in demos:
                ids = sorted(d["ctxs"], key=lambda x: x["label"], reverse=True)
                ranking = " > ".join([x["id"] for x in ids])
                demo_text += "\\n\\n".join([passage_template.format(**c) for c in d["ctxs"]]) + f"\\n\\nSought: {d['query']}\\nOrder: {ranking}" + "\\n\\n"
        return {"context": passage_text, "question": sample["query"], "demos": demo_text}

    return {"data": load_dataset(path).map(update), "prompt_template": prompt_template}


def load_icl(dataset, max_test_sample=None, seed=42):
    if "trec_fine" in dataset.lower():
        text_field = "text"
    elif "nlu" in dataset.lower():
        text_field = "text"
    else:
        raise NotImplementedError("unknown")
    item_template = "{text}\\nnumber: {label}"
    user_template = "Number the text. Write \\"number: {{label}}\\" only. \\n\\n{context}\\n\\n{question}"
    system_template = "number:"
    prompt_template = user_template + "\\n" + system_template

    def preprocess(sample):
        context = "\\n\\n".join([
            item_template.format(text=selected_item[text_field], label=str(mapping[int(selected_item["label"])]))
            for selected_item in demos]
        )
        return {"context": context, "question": sample[text_field]}

    return {"data": preprocess, "prompt_template": prompt_template}


def load_ruler(dataset, path, max_test_samples=None, seed=42):
    user_template = "{context}\\n\\n{question}"
    system_template = "Reply:"
    if "niah_mv" in dataset or "niah_mq" in dataset:
        user_template = "Mind the {type_needle_v} in this text.\\n{context}\\nAll {type_needle_v} for {query}?"
        system_template = "All {type_needle_v} for {query} are"
    elif "niah" in dataset:
        user_template = "Mind the {type_needle_v} in this text.\\n{context}\\nThe {type_needle_v} for {query}?"
        system_template = "The {type_needle_v} for {query} is"
    else:
        raise NotImplementedError(dataset)
    prompt_template = user_template + "\\n" + system_template
    return {"data": path, "prompt_template": prompt_template}


def load_alce(dataset, path, demo_path, shots=0):
    with open(demo_path, "r") as f:
        demos = json.load(f)
    instruction = demos["instruction"]
    demo_prompt = demos["demo_prompt"]
    doc_prompt = demos["doc_prompt"]
    user_template = "{demo_text}{instruction}\\n\\nAsked: {question}\\n\\n{context}"
    system_template = "Reply:"
    prompt_template = user_template + "\\n\\n" + system_template

    def preprocess_example(example):
        context = "\\n\\n".join([doc_prompt.format(**d, ID=idx+1) for idx, d in enumerate(example["docs"])])
        demo_text = "\\n\\n\\n".join([
            demo_prompt.format(**demo, instruction=instruction, context = "\\n\\n".join([doc_prompt.format(**d, ID=idx+1) for idx, d in enumerate(demo["docs"])]))
            for demo in random.sample(demos["demos"], shots)
        ])
        if shots > 0:
            demo_text += "\\n\\n\\n"
        return {"context": context, "demo_text": demo_text, "instruction": instruction}

    return {"data": preprocess_example, "prompt_template": prompt_template}


def load_infbench(dataset, shots=0, max_test_samples=None, seed=42):
    if "qa_eng" in dataset:
        user_template = "A book and a question.\\n\\n{demo}{context}\\n\\nAsked: {question}"
        system_template = "Reply:"
    elif "choice_eng" in dataset:
        user_template = "A book and a choice.\\n\\n{demo}{context}\\n\\nAsked: {question}\\nChoices:\\n{options}"
        system_template = "Reply:"
    elif "sum_eng" in dataset:
        user_template = "Sum up the book.\\n\\n{demo}{context}\\n\\nSum it up."
        system_template = "In short:"
    prompt_template = user_template + "\\n\\n" + system_template

    def add_demos(example):
        demos = data.filter(lambda x: x["id"] != example["id"])
        if "qa_eng" in dataset:
            temp = "[tale]\\nAsked: {question}\\nReply: {answer[0]}"
            demo = "\\n\\n".join([temp.format(**x) for x in demos])
        elif "choice_eng" in dataset:
            temp = "[tale]\\nAsked: {question}\\nChoices:\\n{options}\\nReply: {answer[0]}"
            demo = "\\n\\n".join([temp.format(**x) for x in demos])
        elif "sum_eng" in dataset:
            demo = "\\n\\n".join([f"[tale]\\nIn short: {x['answer'][0].strip()}" for x in demos])
        return {"demo": f"Such as:\\n\\n{demo}\\n\\nAnd now:\\n\\n"}

    return {"data": data.map(add_demos), "prompt_template": prompt_template}
"""  # noqa: E501 - the lines are as long as in code of this form
CITED = {
    "instruction": "Cite {pages} like this: [1].",
    "demo_prompt": "{instruction}\n\nAsked: {question}\n\n{context}\n\nReply: {answer}",
    "doc_prompt": "Page [{ID}](Head: {title}): {text}\n",
}


# The rubrics of the clone's judge, by script.
JUDGES = {
    "eval_gpt4_longqa.py": '''
from model_utils import OpenAIModel

judge_prompt = """Mark it as {{"fluency": 0, "correctness": 1}}.
Asked: {question}
Right: {correct_answers}
Said: {parsed_output}
"""
''',
    "eval_gpt4_summ.py": "\n".join(
        f'{name} = """{kind} as {form}. {slots}"""'
        for book in ("", "_book")
        for kind, form, slots in (
            ("fluency", '{{"fluency": 1}}', "{text}"),
            ("recall", '{{"recall": 4}}', "{keypoints} / {summary}"),
            ("precision", '{{"precision": 7, "sentence_count": 20}}', "{expert_summary} / {summary}"),
        )
        for name in [f"{kind}_prompt{book}"]
    ),
}


def make_helmet_clone(directory: Path) -> Path:
    """Write the files into a new directory, and return it."""
    prompts = directory / "prompts"
    prompts.mkdir(parents=True)
    (directory / "data.py").write_text(SOURCE, encoding="utf-8")
    (directory / "scripts").mkdir()
    for name, source in JUDGES.items():
        (directory / "scripts" / name).write_text(source, encoding="utf-8")
    for name in ("asqa", "qampari"):
        (prompts / f"{name}_revised.json").write_text(json.dumps(CITED), encoding="utf-8")
    return directory
