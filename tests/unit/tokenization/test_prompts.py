"""Prompts start with one BOS and end with the answer prefix, and token counts add up, for every kind of tokenizer."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from longctx.fixtures.records import Conversation
from longctx.fixtures.tasks import TASKS
from longctx.fixtures.tokenization import bounded
from longctx.fixtures.tokenization.load import TokenizerError, load_tokenizer
from longctx.fixtures.tokenization.prompts import SYSTEM_PROMPT, ChatMode, PromptFormatter, differing_part
from longctx.plugins.runner.samples import fill_ratio, sample_problems
from tests.helpers.tiny_tokenizers import (
    BOS,
    EOS,
    GENERATED,
    KINDS,
    RULER,
    formatter,
    make_sample,
    with_template,
    wrapped,
)

TURNS = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
OPENING = "{% if add_generation_prompt %}[assistant]\n{% endif %}"
TEMPLATE = TURNS + OPENING
TEMPLATE_WITH_BOS = "{{ bos_token }}" + TEMPLATE
STRICT_TEMPLATE = "{% if messages[0]['role'] != 'system' %}{{ raise_exception('system first') }}{% endif %}" + TEMPLATE
BROKEN_TEMPLATE = "{{ raise_exception('no') }}" + TEMPLATE
every_kind = pytest.mark.parametrize("kind", KINDS)


def words_tokenizer(*lead: str) -> Any:
    """Return a tokenizer with one token per word; the tokens of `lead` open every text."""
    vocabulary = {token: index for index, token in enumerate(("<unk>", BOS, "[gMASK]", "<sop>", "a", "is", "b"))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([*lead])
    return wrapped(tokenizer, lead=lead)


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


# --- base models ---


@every_kind
def test_a_base_prompt_is_one_bos_the_text_a_space_and_the_answer_prefix(kind: str) -> None:
    prompt = formatter(kind).prompt("Two\nlines.", "The answer is", generation_tokens=7, stop=("\n",))
    tokenizer = formatter(kind).tokenizer
    assert prompt.text == "Two\nlines. The answer is"
    assert prompt.token_ids == (tokenizer.bos_token_id, *plain_ids(tokenizer, prompt.text))
    assert (prompt.length_tokens, prompt.generation_tokens, prompt.stop) == (len(prompt.token_ids), 7, ("\n",))


def test_a_prompt_has_no_bos_if_the_tokenizer_has_none() -> None:
    tokenizer = words_tokenizer()
    assert PromptFormatter(tokenizer).leading_ids == ()
    assert PromptFormatter(tokenizer).prompt("a", "is", generation_tokens=1).token_ids == (4, 5)


def test_two_leading_tokens_open_the_prompt_once() -> None:
    """GLM's tokenizers open a prompt with two special tokens and have no BOS."""
    tokenizer = words_tokenizer("[gMASK]", "<sop>")
    assert PromptFormatter(tokenizer).prompt("a", "is", generation_tokens=1).token_ids == (2, 3, 4, 5)
    tokenizer.chat_template = "[gMASK] <sop> a {{ messages[0]['content'] }} "
    assert PromptFormatter(tokenizer).prompt("b", "is", generation_tokens=1).token_ids == (2, 3, 4, 6, 5)


# --- chat models ---


@pytest.mark.parametrize("template", [TEMPLATE, TEMPLATE_WITH_BOS, "{{ bos_token }}" + TEMPLATE_WITH_BOS])
def test_a_chat_prompt_opens_with_exactly_one_bos(template: str) -> None:
    tokenizer = with_template(template)
    prompt = PromptFormatter(tokenizer).prompt("What is it?", "It is", generation_tokens=4)
    assert prompt.text.removeprefix(BOS).removeprefix(BOS) == "[user] What is it?\n[assistant]\nIt is"
    body = prompt.text.replace(BOS, "")
    assert prompt.token_ids == (tokenizer.bos_token_id, *plain_ids(tokenizer, body))
    assert prompt.length_tokens == len(prompt.token_ids)


def test_a_chat_prompt_has_no_bos_if_the_tokenizer_has_none() -> None:
    tokenizer = words_tokenizer()
    tokenizer.chat_template = TEMPLATE
    assert BOS not in tokenizer.get_added_vocab()
    assert len(PromptFormatter(tokenizer).prompt("a", "is", generation_tokens=1).token_ids) == 4


@pytest.mark.parametrize("task", RULER)
def test_chat_samples_are_sound_and_end_with_their_prefix(task: str) -> None:
    chat = PromptFormatter(with_template(TEMPLATE_WITH_BOS))
    sample = TASKS[task].sample(4096, 0, seed=0, tokenizer=chat, corpora=GENERATED)
    assert sample.prompt.text.startswith(f"{BOS}[user] ")
    assert sample.prompt.text.endswith(f"\n[assistant]\n{sample.answer_prefix}")
    assert sample_problems(sample, TASKS[task], chat) == []
    base = make_sample(task)
    assert (sample.references, sample.question) == (base.references, base.question)


def test_a_template_that_always_fails_is_a_one_line_error() -> None:
    with pytest.raises(TokenizerError) as raised:
        PromptFormatter(with_template(BROKEN_TEMPLATE)).prompt("What?", "It", generation_tokens=1)
    assert str(raised.value) == "--chat: the chat template fails (no); use --chat off"


# The turn of a template that has no other text than the content.
CONTENT = "{{ messages[0]['content'] }}"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        # A space separates the prefix from a turn that ends in plain text.
        (f"{CONTENT}\n\n", "What?\nIt"), (f"{CONTENT} ", "What? It"), (f"{CONTENT}{EOS}", f"What?{EOS}It"),
        (f"{CONTENT}ASSISTANT:", "What?ASSISTANT: It"),
        (STRICT_TEMPLATE, f"[system] {SYSTEM_PROMPT}\n[user] What?\n[assistant]\nIt"),
        # The date is always the same.
        ("On {{ strftime_now('%d %b %Y') }}.\n" + TEMPLATE, "On 26 Jul 2024.\n[user] What?\n[assistant]\nIt"),
    ],
)  # fmt: skip
def test_a_template_gets_the_prefix_and_what_it_asks_for(template: str, text: str) -> None:
    assert PromptFormatter(with_template(template)).prompt("What?", "It", generation_tokens=1).text == text


@pytest.mark.parametrize(
    ("chat", "template", "used"),
    [("auto", None, False), ("auto", TEMPLATE, True), ("on", TEMPLATE, True), ("off", TEMPLATE, False)],
)
def test_the_chat_option_decides_if_the_template_is_used(chat: ChatMode, template: str | None, used: bool) -> None:
    prompt_formatter = PromptFormatter(with_template(template), chat=chat)
    text = prompt_formatter.prompt("What?", "It", generation_tokens=1).text
    assert prompt_formatter.chat is used
    assert text == ("[user] What?\n[assistant]\nIt" if used else "What? It")


def test_a_required_but_missing_chat_template_is_an_error() -> None:
    with pytest.raises(TokenizerError, match=r"^--chat: 'on', but .* no chat template; use --chat auto or off$"):
        PromptFormatter(with_template(None), chat="on")


# --- counting ---


@every_kind
@pytest.mark.parametrize("separator", [" ", "\n", "\n\n"])
def test_counts_of_units_add_up_to_the_count_of_the_whole(kind: str, separator: str) -> None:
    sentences = [GENERATED.collection("haystack")[index] for index in range(40)]
    whole = len(plain_ids(formatter(kind).tokenizer, separator.join(sentences)))
    assert sum(formatter(kind).count(sentences, separator=separator)) == pytest.approx(whole, rel=0.01)


def test_a_count_does_not_depend_on_earlier_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [GENERATED.collection("haystack")[index] for index in range(12)]
    expected = formatter().count(sentences, separator=" ")
    monkeypatch.setattr(bounded, "MAX_CACHED_COUNTS", 5)
    fresh = PromptFormatter(formatter().tokenizer)
    assert [fresh.count([sentence], separator=" ")[0] for sentence in sentences * 2] == expected * 2
    assert fresh.count(sentences, separator=" ") == expected
    assert fresh.count(sentences[3:] + sentences, separator=" ") == expected[3:] + expected


def test_truncation_and_padding_of_the_fast_tokenizer_do_not_change_prompts() -> None:
    tokenizer = with_template(None)
    expected = PromptFormatter(tokenizer).prompt("A number of words.", "It is", generation_tokens=1)
    other = PromptFormatter(tokenizer)
    tokenizer.backend_tokenizer.enable_truncation(2)
    tokenizer.backend_tokenizer.enable_padding(length=50)
    assert other.prompt("A number of words.", "It is", generation_tokens=1) == expected


@pytest.mark.parametrize("task", RULER)
def test_another_tokenizer_can_define_the_length(task: str) -> None:
    counter = formatter("pieces").tokenizer
    prompt_formatter = PromptFormatter(formatter("unigram").tokenizer, length_tokenizer=counter)
    sample = TASKS[task].sample(4096, 0, seed=0, tokenizer=prompt_formatter, corpora=GENERATED)
    counted = len(counter(sample.prompt.text, add_special_tokens=False, verbose=False)["input_ids"])
    assert sample.prompt.length_tokens == counted
    assert len(sample.prompt.token_ids) != counted
    assert TASKS[task].least_fill <= fill_ratio(sample) <= 1
    assert sample.prompt.token_ids[1:] == tuple(plain_ids(prompt_formatter.tokenizer, sample.prompt.text))


# --- loading ---


def test_a_saved_tokenizer_makes_the_same_prompts(tmp_path: Path) -> None:
    with_template(TEMPLATE_WITH_BOS).save_pretrained(tmp_path)
    loaded = PromptFormatter(load_tokenizer(str(tmp_path)))
    saved = PromptFormatter(with_template(TEMPLATE_WITH_BOS))
    assert loaded.prompt("a b", "c", generation_tokens=1) == saved.prompt("a b", "c", generation_tokens=1)


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_a_directory_without_a_usable_tokenizer_is_a_one_line_error(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
        (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(TokenizerError) as raised:
        load_tokenizer(str(tmp_path), option="--length-tokenizer")
    message = str(raised.value)
    assert message.startswith(f"--length-tokenizer: no tokenizer can be loaded from {tmp_path} (")
    assert message.endswith("give a directory with tokenizer.json and tokenizer_config.json")
    assert "\n" not in message


# --- turns before the user's ---

EARLIER = (("system", "Be brief."), ("user", "Read this."), ("assistant", "Done."))


def test_earlier_turns_are_rendered_by_the_template_or_are_paragraphs() -> None:
    chat = PromptFormatter(with_template(TEMPLATE)).prompt("Who?", "It is", generation_tokens=4, earlier=EARLIER)
    assert chat.text == "[system] Be brief.\n[user] Read this.\n[assistant] Done.\n[user] Who?\n[assistant]\nIt is"
    base = formatter().prompt("Who?", "It is", generation_tokens=4, earlier=EARLIER)
    assert base.text == "Be brief.\n\nRead this.\n\nDone.\n\nWho? It is"
    assert not isinstance(base, Conversation)


def test_a_server_that_applies_the_template_gets_all_turns() -> None:
    turns = PromptFormatter(with_template(TEMPLATE), keeps_turns=True)
    prompt = turns.prompt("Who?", "", generation_tokens=4, earlier=EARLIER)
    assert isinstance(prompt, Conversation)
    assert (prompt.earlier, prompt.turns) == (EARLIER, ("Who?", ""))


# --- comparisons ---


def changed_rules(part: str) -> Any:
    tokenizer = words_tokenizer(BOS)
    if part == "template":
        tokenizer.chat_template = TEMPLATE
    elif part == "added token":
        tokenizer.add_tokens(["<tool>"])
    elif part == "padding":
        tokenizer.backend_tokenizer.enable_padding(length=64)
    elif part == "other ids":
        content = json.loads(tokenizer.backend_tokenizer.to_str())
        content["model"]["vocab"] |= {"a": 5, "is": 4}
        tokenizer = wrapped(Tokenizer.from_str(json.dumps(content)), lead=(BOS,))
    elif part == "pre-tokenizer":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (changed_rules("nothing"), ""),
        (changed_rules("template"), "chat template (only one of them uses one)"),
        (words_tokenizer("[gMASK]"), "start of every prompt (token ids [1] and [2])"),
        (changed_rules("added token"), ""),
        (changed_rules("padding"), ""),
        (changed_rules("other ids"), "tokenizer.json (model)"),
        (changed_rules("pre-tokenizer"), "tokenizer.json (pre_tokenizer)"),
    ],
)
def test_the_part_in_which_two_formatters_differ_is_named(other: Any, part: str) -> None:
    one, two = PromptFormatter(words_tokenizer(BOS)), PromptFormatter(other)
    assert differing_part(one, two) == part
    prompt = one.prompt("a is b", "a", generation_tokens=1)
    assert part or two.makes_same_ids(prompt)


def test_a_prompt_with_an_added_token_of_one_side_has_other_ids() -> None:
    one, two = PromptFormatter(words_tokenizer(BOS)), PromptFormatter(changed_rules("added token"))
    prompts = [one.prompt(text, "is", generation_tokens=1) for text in ("a b", "a <tool> b")]
    assert [two.makes_same_ids(prompt) for prompt in prompts] == [True, False]


def test_two_chat_templates_differ() -> None:
    one, two = (PromptFormatter(with_template(template)) for template in (TEMPLATE, TEMPLATE_WITH_BOS))
    assert differing_part(one, two) == "chat template"
