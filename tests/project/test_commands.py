"""Every command is in the file of its name, and on the page about the command line."""

from pathlib import Path

import pytest
import typer

from germline.cli import app

PAGE = (Path(__file__).parent.parent.parent / "docs" / "commands.md").read_text()
USUAL = {"--help", "--install-completion", "--show-completion"}


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


WORDS = {"eval": "evaluate", "import": "imports"}  # of Python, so no file can be called so
KNOWN = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", KNOWN, ids=" ".join)
def test_a_command_and_its_options_are_documented(path):
    assert all(f"{name}" in PAGE for name in path)
    for parameter in KNOWN[path].params:
        for option in parameter.opts:
            if option.startswith("--") and option not in USUAL:
                assert f"`{option}`" in PAGE or f"`{option} " in PAGE or f" {option} " in PAGE, (
                    f"{option} of {' '.join(path)}"
                )


@pytest.mark.parametrize("path", KNOWN, ids=" ".join)
def test_a_command_says_what_it_does_and_so_do_its_options(path):
    assert KNOWN[path].help
    for parameter in KNOWN[path].params:
        assert getattr(parameter, "help", None), f"{parameter.name} of {' '.join(path)}"


@pytest.mark.parametrize("path", KNOWN, ids=" ".join)
def test_a_command_is_in_the_file_of_its_name(path):
    assert KNOWN[path].callback.__module__ == f"germline.cli.{WORDS.get(path[0], path[0])}"
