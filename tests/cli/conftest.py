import functools

import pytest
import typer


@pytest.fixture(scope="session", autouse=True)
def built_once():
    """Keep the tree of commands: Typer builds it for every call, which takes longer than most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.main.get_command", functools.cache(typer.main.get_command))
        yield
