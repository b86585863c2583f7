"""Every command is in the file of its name, and on the page about the command line."""

from pathlib import Path

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


PARAMETERS = [(path, parameter) for path, command in KNOWN.items() for parameter in command.params]


def test_a_command_and_its_options_are_documented():
    assert {("train",), ("export", "metrics")} <= set(KNOWN)
    assert [path for path in KNOWN if not all(name in PAGE for name in path)] == []
    unnamed = [
        (path, option)
        for path, parameter in PARAMETERS
        for option in parameter.opts
        if option.startswith("--") and option not in USUAL
        if not any(text in PAGE for text in (f"`{option}`", f"`{option} ", f" {option} "))
    ]
    assert unnamed == []


def test_a_command_says_what_it_does_and_so_do_its_options():
    assert [path for path, command in KNOWN.items() if not command.help] == []
    silent = [(path, p.name) for path, p in PARAMETERS if not getattr(p, "help", None)]
    assert silent == []


def test_a_command_is_in_the_file_of_its_name():
    homes = {path: command.callback.__module__ for path, command in KNOWN.items()}
    wanted = {path: f"germline.cli.{WORDS.get(path[0], path[0])}" for path in KNOWN}
    assert homes == wanted
