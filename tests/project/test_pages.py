"""Every command line on every page names a command that there is, and options that it has."""

import re
from pathlib import Path

import pytest
import typer

from germline.cli import app

ROOT = Path(__file__).parent.parent.parent
COMMANDS = typer.main.get_command(app)
PAGES = {
    str(page.relative_to(ROOT)): page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if page.name != "CHANGELOG.md"  # it names what has gone, too
}
FENCED = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    \S.*(?:\n    .*)*", re.MULTILINE)
CANONICAL = ("germline genome 1", "germline layout 1")  # first lines of what ids are hashes of
INLINE = re.compile(r"`(germline [^`]+)`")
LINE = re.compile(r"^ *(?:[A-Z_]+=\S+ )*(germline [^|&;>#\n]*)", re.MULTILINE)


def command_lines(text):
    """Those of shell blocks, indented blocks and code within sentences."""
    blocks = [block for kind, block in FENCED.findall(text) if kind in ("", "bash", "console")]
    rest = FENCED.sub("", text)
    blocks += INDENTED.findall(rest)
    for block in blocks:
        joined = re.sub(r"\\\n\s*", "", block)
        yield from LINE.findall(re.sub(r"(?:\||&&) germline ", r"\ngermline ", joined))
    for span in INLINE.findall(rest):
        yield from LINE.findall(" ".join(span.split()))


def unknown(line):
    """What is wrong with a command line; nothing, as a rule."""
    if line in CANONICAL:
        return None
    words = line.replace("export --html", "export html").split()[1:]
    command = COMMANDS
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        name = words.pop(0)
        if name == "..." or name.isupper():
            return None  # any command
        if name not in command.commands:
            return f"{name} is no command"
        command = command.commands[name]
    known = {"--help", "-h", *(option for p in command.params for option in p.opts)}
    known |= {option for p in command.params for option in p.secondary_opts}
    for word in words:
        option = word.strip("[]'\",.").partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option) and option not in known:
            return f"{option} is no option of it"
    return None


def test_command_lines_of_every_page():
    lines = [(p, line) for p, path in PAGES.items() for line in command_lines(path.read_text())]
    assert len(lines) > 100
    wrong = [(page, line, unknown(line)) for page, line in lines]
    assert [(page, line, reason) for page, line, reason in wrong if reason] == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("    germline train cartpole --plain  # evolve\n", []),
        ("```bash\ngermline train cartpole \\\n  --sett a=1\n```\n", ["--sett is no option of it"]),
        ("Say `germline trian cartpole`.", ["trian is no command"]),
        ("    A=1 germline genome new mlp | germline genome hsh -\n", ["hsh is no command"]),
        ("    germline export --html RUN --out run.html\n", []),
        ("```python\ngermline = 1\n```\n", []),
    ],
)
def test_a_wrong_command_line_is_found(text, wrong):
    assert [reason for reason in map(unknown, command_lines(text)) if reason] == wrong


def test_pages_have_command_lines():
    assert all(
        list(command_lines(PAGES[page].read_text())) for page in ("README.md", "docs/runs.md")
    )
