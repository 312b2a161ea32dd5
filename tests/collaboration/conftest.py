"""The project that the tests of this folder work in."""

from pathlib import Path

import pytest
from collaboration_cases import write_encoder, write_rows


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Rows to answer and an encoder that answers them."""
    write_rows(tmp_path)
    write_encoder(tmp_path)
    return tmp_path
