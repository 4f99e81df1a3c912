"""Checkpoints and engines that the tests of a module share."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.helpers.tiny_engines import Ready, Saved


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> "Saved":
    from tests.helpers.tiny_engines import saved_in  # it imports torch, which tests of servers do not need

    return saved_in(tmp_path_factory)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> "Ready":
    from tests.helpers.tiny_engines import ready_in

    return ready_in(tmp_path_factory)
