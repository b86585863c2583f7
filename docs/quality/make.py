"""Counts what can be counted of the code, and writes it into the page beside this script.

    make test && .ci/run && .venv/bin/python docs/quality/make.py
    .venv/bin/python docs/quality/make.py --times .cache/test{,-numerics}.xml  # where time goes
    .venv/bin/python docs/quality/make.py --runs                               # what stands twice

Times are those of the last `make test`, `make test-all` and `make test-release`, which leave them
in `.cache`.
"""

import ast
import datetime
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
RUN = 6  # lines that count as written twice when they stand in two places
START, END = "<!-- made by make.py -->", "<!-- end -->"


def tracked(pattern: str) -> list[Path]:
    """The files of the repository that match."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in sorted(names.split()) if (ROOT / name).exists()]


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines without blank ones, comments, docstrings, imports and lone brackets."""
    text = path.read_text()
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        quoted = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if quoted or isinstance(node, ast.Import | ast.ImportFrom):
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [
        (number, line)
        for number, line in lines
        if number not in skipped and not re.fullmatch(r"#.*|[\])}{(\[,:]*", line)
    ]


def duplicated(paths: list[Path]) -> list[tuple[int, str, str]]:
    """(length, place, place) of runs of the same lines in two places, each as long as it can be."""
    lines = {path: code_lines(path) for path in paths}
    places = defaultdict(list)
    for path, found in lines.items():
        for start in range(len(found) - RUN + 1):
            places[tuple(line for _, line in found[start : start + RUN])].append((path, start))
    pairs = {pair for same in places.values() for pair in combinations(same, 2)}
    runs = []
    for (one, start), (two, begin) in sorted(pairs):
        if ((one, start - 1), (two, begin - 1)) in pairs:
            continue  # the middle of a run
        length = RUN
        while ((one, start + length - RUN + 1), (two, begin + length - RUN + 1)) in pairs:
            length += 1
        where = (
            f"{path.relative_to(ROOT)}:{lines[path][at][0]}"
            for path, at in ((one, start), (two, begin))
        )
        runs.append((length, *where))
    return runs


def sizes(paths: list[Path]) -> str:
    """How many modules there are, the median of their lines, and the largest."""
    counted = sorted((len(path.read_text().splitlines()), path) for path in paths)
    lines, largest = counted[-1]
    median = statistics.median(count for count, _ in counted)
    total = sum(count for count, _ in counted)
    return (
        f"{len(paths)} modules, {total:,} lines; median {median:.0f}, "
        f"largest {lines} (`{largest.relative_to(ROOT)}`), "
        f"{sum(count > 350 for count, _ in counted)} over 350"
    )


def collected(*options: str) -> int:
    """How many tests pytest finds."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", *options]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return int(re.findall(r"(\d+)(?:/\d+)? tests? collected", out)[-1])


def tests_of(*paths: Path) -> list[ElementTree.Element]:
    """What JUnit files say of every test."""
    return [test for path in paths for test in ElementTree.parse(path).iter("testcase")]


def duration(lane: str) -> str:
    """How long a lane of tests took the last time, and how it ended."""
    files = (ROOT / ".cache" / f"{lane}{part}.xml" for part in ("-numerics", ""))
    paths = [path for path in files if path.exists()]
    if not paths:
        return f"not run (`make {lane}`)"
    found = [ElementTree.parse(path).getroot()[0].attrib for path in paths]
    names = ("tests", "time", "failures", "errors", "skipped")
    count = {name: sum(float(part[name]) for part in found) for name in names}
    return (
        f"{count['tests']:.0f} tests in {count['time'] / 60:.1f} minutes; "
        f"{count['failures'] + count['errors']:.0f} failed, {count['skipped']:.0f} skipped"
    )


def times(paths: list[Path]) -> str:
    """Seconds of tests and their number, by folder of `tests` and for the ten largest modules."""
    folders: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for test in tests_of(*paths):
        module = re.sub(r"\.[A-Z]\w*$", "", test.attrib["classname"]).removeprefix("tests.")
        folder = module.partition(".")[0] if "." in module else "."
        for name, seconds in ((folder, folders), (module, modules)):
            seconds[name] += float(test.attrib["time"])
            counts[name] += 1
    head = f"{sum(folders.values()):.0f} s of {sum(counts[name] for name in folders)} tests\n"
    ranked = [*folders.most_common(), *modules.most_common(10)]
    return head + "\n".join(f"{s:7.1f} s {counts[name]:5}  {name}" for name, s in ranked)


def passes(*command: str) -> str:
    """What a check says of itself in its last line."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    last = (done.stdout or done.stderr).strip().splitlines()[-1].strip("= ")
    return "fails: " * bool(done.returncode) + re.sub(r" in [\d.]+s.*", "", last)


def rows() -> list[tuple[str, str, str]]:
    """What is counted, what it comes to, and the command that says so."""
    source, tests = tracked("src/*.py"), tracked("tests/*.py")
    twice = duplicated(source)
    longest = max(twice, default=(0, "", ""))
    text = "".join(path.read_text() for path in source)
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    imports = "tests/project/test_structure.py"
    python = ".venv/bin/python"
    return [
        ("size of `src`", sizes(source), "this script"),
        ("size of `tests`", sizes(tests), "this script"),
        (
            f"runs of {RUN} or more lines in two places of `src`",
            f"{len(twice)}" + (f", the longest {longest[0]} lines" if twice else ""),
            "this script; `--runs` lists them",
        ),
        (
            "imports point one way",
            passes(sys.executable, "-m", "pytest", "-q", imports, "-k", "one_way"),
            f"`{python} -m pytest {imports} -k one_way`",
        ),
        (
            "types",
            f"mypy, strict = {str(mypy['strict']).lower()}: "
            f"{passes(sys.executable, '-m', 'mypy')}; {text.count('type: ignore')} `type: ignore`",
            "`make lint`",
        ),
        ("style", passes(sys.executable, "-m", "ruff", "check", "."), "`ruff check .`"),
        (
            "tests",
            f"{collected():,}, of which {collected('-m', 'system'):,} need a Debian package, "
            f"{collected('-m', 'slow'):,} patience and {collected('-m', 'release'):,} a release",
            f"`{python} -m pytest --collect-only -q`",
        ),
        ("`make test`", duration("test"), "`make test`"),
        ("`make test-all`", duration("test-all"), "`make test-all`"),
        ("`make test-release`", duration("test-release"), "`make test-release`"),
    ]


def main() -> None:
    """Write the table, or say where time goes, or what stands in two places."""
    if "--runs" in sys.argv:
        for length, one, two in sorted(duplicated(tracked("src/*.py")), reverse=True):
            print(f"{length:3} lines  {one}  {two}")
        return
    if "--times" in sys.argv:
        print(times([Path(name) for name in sys.argv[2:]]))
        return
    table = "\n".join(f"| {what} | {figure} | {command} |" for what, figure, command in rows())
    date = f"{datetime.date.today():%-d %B %Y}"
    made = f"{START}\nMade on {date}.\n\n| | | command |\n|---|---|---|\n{table}\n{END}"
    page = HERE / "README.md"
    old = page.read_text()
    page.write_text(re.sub(f"{START}.*{END}", lambda _: made, old, flags=re.DOTALL))
    print(made)


if __name__ == "__main__":
    main()
