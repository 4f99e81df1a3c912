"""A chat template is found where the files of a checkpoint have it."""

from pathlib import Path

import pytest

from longctx.fixtures.tokenization.load import TokenizerError, load_tokenizer
from tests.helpers.tiny_tokenizers import byte_level


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ('{"chat_template": "{{ messages }}"}', "{{ messages }}"),
        ("{}", None),
        ("[", None),
        ('{"chat_template": []}', None),
    ],
)
def test_a_template_in_the_file_of_a_processor_is_read(content: str, expected: str | None, tmp_path: Path) -> None:
    byte_level().save_pretrained(str(tmp_path))
    (tmp_path / "chat_template.json").write_text(content)
    if expected is None:
        with pytest.raises(TokenizerError, match=r"no tokenizer can be loaded from .* \((no valid|.* no text|Exp)"):
            load_tokenizer(str(tmp_path))
    else:
        assert load_tokenizer(str(tmp_path)).chat_template == expected
