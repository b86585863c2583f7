"""Every figure on a page can be made again: commands that are named exist, and so do their options.

What a simple rule can say of it: files and options that pages name are there, every benchmark has
its line on the page of performance, and a page or a section with measured figures names a command
or the page that has it.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
BENCHMARKS = sorted(path.name for path in (ROOT / "benchmarks").glob("*.py"))
SCRIPT = r"(?:benchmarks|docs|examples)/[\w./-]+\.py"
NAMED = re.compile(rf"(?<![\w/.-])(?:{SCRIPT}|(?:tests|examples|docs)/[\w./-]*\w)")
CALL = re.compile(rf"python ({SCRIPT})([^`\n#]*)")
MEASURED = re.compile(  # a number with a unit that is measured, or a ratio
    r"\d ?(?:ms|µs|s|seconds|minutes|hours|MB|×|%|frames a second|evaluations a second)(?![\w/])"
)
HEAD = re.compile(r"\b(?:ms|µs|seconds|hours|bytes|frames|evaluations|generations?|mean|median)\b")
COMMAND = re.compile(r"python (?:benchmarks|docs)/|germline \w+|decode\.py \w+|make \w+")
LINK = re.compile(r"\]\([^)]*(?:\.md(?:#[\w-]+)?|experiments/[\w-]+|results/[\w-]+)\)")


def test_every_benchmark_is_on_the_page_of_performance():
    page = PAGES["docs/performance.md"]
    assert [name for name in BENCHMARKS if f"benchmarks/{name}" not in page] == []


def test_files_that_a_page_names_are_there():
    named = [(page, name) for page, text in PAGES.items() for name in NAMED.findall(text)]
    assert len(named) > 50
    assert [(page, name) for page, name in named if not (ROOT / name).exists()] == []


def is_known(word, script):
    """Whether a script takes an option, or a benchmark has a part of this name."""
    source = (ROOT / script).read_text()
    if word.startswith("--"):
        return f'"{word}"' in source
    if re.fullmatch(r"[a-z]+", word) and script.startswith("benchmarks/"):
        return bool(re.search(rf"\b{word}\b", source))
    return True


def test_options_and_parts_of_scripts_that_a_page_names_are_known():
    calls = [(page, *call) for page, text in PAGES.items() for call in CALL.findall(text)]
    given = [(page, script, word) for page, script, rest in calls for word in rest.split()]
    assert len(given) > 20
    assert [case for case in given if not is_known(case[2], case[1])] == []


def test_options_in_the_text_about_performance_are_those_of_a_benchmark():
    sources = "".join((ROOT / "benchmarks" / name).read_text() for name in BENCHMARKS)
    for call in re.findall(r"`(--[^`]+)`", PAGES["docs/performance.md"]):
        for option in re.findall(r"--[a-z-]+(?![\w=])", call):
            assert f'"{option}"' in sources, f"{call}: no benchmark has {option}"


def sections(text):
    """The parts of a page between headings of the second level, what is above them included."""
    return re.split(r"^(?=## )", text, flags=re.M)


def tables(text):
    """The tables in it."""
    return re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M)


def measured(table):
    """Whether it holds figures that somebody measured, by units in its cells or in its head."""
    head, _, rows = table.partition("\n")
    numbers = re.findall(r"\| \**[−-]?\d[\d,.]*\b", rows)
    return len(MEASURED.findall(table)) > 2 or (HEAD.search(head) and len(numbers) > 2)


def without_source(page):
    """The sections of a page that have measured figures without a date or a command."""
    top, *others = sections(PAGES[page])
    for section in [top, *others]:
        if any(measured(table) for table in tables(section)):
            title = section.partition("\n")[0]
            if not re.search(r"\b20\d\d\b", PAGES[page]):
                yield f"{page}: {title}: figures without a date"
            if not (COMMAND.search(section) or COMMAND.search(top) or LINK.search(section)):
                yield f"{page}: {title}: figures without a command"


def test_tables_of_measured_figures_have_their_command():
    assert sum(bool(measured(t)) for text in PAGES.values() for t in tables(text)) > 20
    assert [reason for page in PAGES for reason in without_source(page)] == []


def test_tables_are_whole():
    """A table without a line of dashes under its head is the rest of one that was cut in two."""
    every = [(page, table) for page, text in PAGES.items() for table in tables(text)]
    assert len(every) > 50
    head = re.compile(r"\|.*\n\|[\s:|-]+\n")
    assert [(page, table[:80]) for page, table in every if not head.match(table)] == []
