import pytest

from jobs.models import Member
from tests.rig.rows import make_gang


@pytest.fixture
def member(db: None) -> Member:
    return make_gang()[0]
