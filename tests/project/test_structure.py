"""The shape of the project: which way imports point, and what its pages must not forget."""

import ast
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import germline
from germline.cli import doctor

ROOT = Path(__file__).parent.parent.parent
MARK = "mark." + "numerics"
SOURCE = ROOT / "src" / "germline"
PRESETS = SOURCE / "presets"  # which has no modules
ORDER = re.findall(r"^    (\w+)  ", germline.__doc__, re.MULTILINE)
MODULES = sorted(
    p.relative_to(SOURCE) for p in SOURCE.rglob("*.py") if p.parent != SOURCE
) + sorted(p.relative_to(SOURCE) for p in SOURCE.glob("[!_]*.py"))


def room(module):
    return module.parts[0].removesuffix(".py")


def rooms_imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "germline":
                yield from (alias.name for alias in node.names)
            elif (node.module or "").startswith("germline."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("germline."):
                    yield alias.name.split(".")[1]


def test_the_package_docstring_lists_every_room():
    assert set(ORDER) == {room(module) for module in MODULES}


FOLDERS = [p.parent for p in SOURCE.rglob("__init__.py") if p.parent not in (SOURCE, PRESETS)]


def unsaid(folder):
    """The modules of a folder that its docstring does not name."""
    words = re.findall(r"\w+", ast.get_docstring(ast.parse((folder / "__init__.py").read_text())))
    modules = [*folder.glob("[!_.]*.py"), *(p.parent for p in folder.glob("[!_.]*/__init__.py"))]
    return [module for module in modules if module.stem not in words]


def test_a_folder_says_what_its_modules_are():
    assert len(FOLDERS) > 5
    assert [module for folder in FOLDERS for module in unsaid(folder)] == []


def test_imports_point_one_way():
    assert len(MODULES) > 50
    wrong = [
        f"{module} imports {imported}, which comes later"
        for module in MODULES
        for imported in rooms_imported(SOURCE / module)
        if ORDER.index(imported) > ORDER.index(room(module))
    ]
    assert wrong == []


def dependencies(without=None):
    """The packages that are named; `without` leaves out those that only one extra names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    groups = [project["dependencies"], *(extras[name] for name in extras.keys() - {without})]
    return {re.match(r"[A-Za-z0-9-]+", item)[0] for group in groups for item in group}


def only_for_benchmarks():
    return dependencies() - dependencies(without="bench")


LICENCES = dict(
    re.findall(
        r"^\| ([A-Za-z0-9-]+) \| ([^|]+) \|",
        (ROOT / "docs" / "licences.md").read_text(),
        re.MULTILINE,
    )
)
# What packages without an expression of their licence say of it.
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-",
    "GNU Library or Lesser General Public License (LGPL)": "LGPL-",
    "MIT License": "MIT",
}


def test_the_licences_page_names_every_dependency():
    assert dependencies() - LICENCES.keys() == set()


def said_of_its_licence(name):
    """What an installed package says of its licence; nothing of one that is not here."""
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return []
    if expression := about.get("License-Expression"):
        found = re.sub(r"-(only|or-later)\b", "", expression)
        return [word for word in re.findall(r"[\w.-]+", found) if word not in ("AND", "OR", "WITH")]
    kinds = [line.rpartition(" :: ") for line in about.get_all("Classifier") or []]
    return [CLASSIFIERS[last] for start, _, last in kinds if start.startswith("License")]


def test_the_licence_is_what_the_package_says():
    """Of the packages that `make test` installs; those of benchmarks come and go."""
    assert len(LICENCES) > 20
    wrong = {
        name: [word for word in said_of_its_licence(name) if word not in LICENCES[name]]
        for name in LICENCES.keys() - {"package"} - only_for_benchmarks()
    }
    assert {name: words for name, words in wrong.items() if words} == {}


def test_the_version_is_one():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == germline.__version__
    assert f"## {germline.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"germline {germline.__version__}\n" in (ROOT / "docs" / "tutorial.md").read_text()
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == germline.__version__
    assert f"## {germline.__version__}, {cited['date-released']}" in (
        (ROOT / "CHANGELOG.md").read_text()
    )


def test_marks_of_numerics_stand_where_make_looks_for_them():
    """In modules of tests: `make` runs the tests so marked of files that have the word."""
    marked = {path.name for path in (ROOT / "tests").rglob("*.py") if MARK in path.read_text()}
    assert len(marked) > 10
    assert {name for name in marked if not name.startswith("test_")} == set()


def test_every_page_names_the_same_versions_of_python():
    words = f"Python {', '.join(doctor.TESTED[:-1])} {{}} {doctor.TESTED[-1]}"
    pages = {"README.md": "or", "docs/tutorial.md": "or"}
    pages |= {"docs/platforms.md": "and", "docs/releases.md": "and"}
    for page, joined in pages.items():
        assert words.format(joined) in (ROOT / page).read_text(), page
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    start = "Programming Language :: Python :: 3."
    said = [text.split()[-1] for text in project["classifiers"] if text.startswith(start)]
    assert said == list(doctor.TESTED)
    assert project["requires-python"] == f">={doctor.TESTED[0]}"


def test_the_citation_is_of_the_form_that_others_read():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert cited["cff-version"] == "1.2.0"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["license"] == project["license"]
    assert [who["name"] for who in cited["authors"]] == [who["name"] for who in project["authors"]]
    (paper,) = cited["references"]
    assert paper["identifiers"][0]["value"] == "arXiv:1712.06567"


def test_constraints_pin_and_name_no_host():
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9.]*( ;.*)?", line), line
        assert "://" not in line


def test_the_public_names_are_there():
    for name in germline.__all__:
        assert getattr(germline, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = germline.nothing
