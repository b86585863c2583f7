"""The shape of the project: which way imports point, and what its pages must not forget."""

import ast
import re
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import germline

ROOT = Path(__file__).parent.parent.parent
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


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_folder_says_what_its_modules_are(folder):
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))
    for module in folder.glob("[!_.]*"):
        if module.suffix == ".py" or (module / "__init__.py").exists():
            assert re.search(rf"\b{module.stem}\b", text), module.name


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_point_one_way(module):
    here = ORDER.index(room(module))
    for imported in rooms_imported(SOURCE / module):
        assert ORDER.index(imported) <= here, f"{module} imports {imported}, which comes later"


def dependencies():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    return {re.match(r"[A-Za-z0-9-]+", item)[0] for group in groups for item in group}


@pytest.mark.parametrize("name", sorted(dependencies()))
def test_the_licences_page_names_every_dependency(name):
    page = (ROOT / "docs" / "licences.md").read_text()
    assert re.search(rf"^\| {re.escape(name)} \|", page, re.MULTILINE)


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


@pytest.mark.parametrize("name", sorted(LICENCES.keys() - {"package"}))
def test_the_licence_is_what_the_package_says(name):
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return  # an extra that is not here
    if expression := about.get("License-Expression"):
        found = re.sub(r"-(only|or-later)\b", "", expression)
        said = [word for word in re.findall(r"[\w.-]+", found) if word not in ("AND", "OR", "WITH")]
    else:
        kinds = [line.rpartition(" :: ") for line in about.get_all("Classifier") or []]
        said = [CLASSIFIERS[last] for start, _, last in kinds if start.startswith("License")]
    assert [word for word in said if word not in LICENCES[name]] == []


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
