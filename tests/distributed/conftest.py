import pytest
from two_ranks import World


@pytest.fixture(scope="session")
def world():
    world = World()
    yield world
    world.end()
