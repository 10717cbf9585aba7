"""The style rules that no tool checks, as tests. Each rule is also shown an offender, so that it cannot rot."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINES_LIMIT = 600
SOURCE_SUFFIXES = {".py", ".pyi", ".c", ".cc", ".cpp", ".h", ".hpp"}
EMPTY_NAMES = re.compile(r"(^|_)(utils?|commons?|managers?|helpers?|impl)(_|\.|$)")
# Written in pieces, because this file obeys the rule as well.
MACHINE_PATHS = re.compile(r"(?<![\w.~$})*-])/(?:work|root|home)(?=/|[\s'\"`)]|$)", re.MULTILINE)
REGISTRY_HOSTS = re.compile(
    "|".join(
        re.escape(host)
        for host in (
            "pypi" + ".org",
            "python" + "hosted.org",
            "npmjs" + ".org",
            "deb." + "debian.org",
            "archive." + "ubuntu.com",
        )
    )
)
PROGRAMS = {"capi_bridge", "cli", "launch_ascend_mf_store"}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

Rule = Callable[[Path, str], Iterator[str]]


def is_package_code(path: Path) -> bool:
    return path.parts[0] == "src" and path.suffix == ".py"


def short_enough(path: Path, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if path.suffix in SOURCE_SUFFIXES and lines > LINES_LIMIT:
        yield f"has {lines} lines, the limit is {LINES_LIMIT}: give it one noun less"


def name_says_something(path: Path, text: str) -> Iterator[str]:
    for part in path.parts:
        if EMPTY_NAMES.search(part):
            yield f"the name {part!r} does not say what is inside"


def module_has_docstring(path: Path, text: str) -> Iterator[str]:
    if path.suffix == ".py" and not ast.get_docstring(ast.parse(text)):
        yield "has no docstring: say what it owns and what it must not do"


def nothing_sleeps(path: Path, text: str) -> Iterator[str]:
    if not is_package_code(path):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr == "sleep" and ast.unparse(node.value) == "time":
            yield f"line {node.lineno}: sleeps; wait for the event, with a deadline"
        if isinstance(node, ast.ImportFrom) and node.module == "time" and any(n.name == "sleep" for n in node.names):
            yield f"line {node.lineno}: imports sleep; wait for the event, with a deadline"


def decoders_are_made_at_import(path: Path, text: str) -> Iterator[str]:
    """msgspec looks at a type when that is decoded first; two threads that do so together end the process."""
    if not is_package_code(path):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith(
            ("msgspec.json.dec", "msgspec.msgpack.dec")
        ):
            yield f"line {node.lineno}: decodes a type that may be new to msgspec; make a Decoder of it at import"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                if isinstance(inner, ast.Call) and ast.unparse(inner.func).endswith(
                    ("json.Decoder", "msgpack.Decoder")
                ):
                    yield f"line {inner.lineno}: makes a Decoder when it is called; make it at import"


def parts_not_the_whole(path: Path, text: str) -> Iterator[str]:
    """Inside the package only programs may import all of it; import-linter cannot tell (see pyproject.toml)."""
    package = Path("src/memfabric_hybrid")
    if not (is_package_code(path) and path.is_relative_to(package)) or PROGRAMS & {path.stem, path.parent.name}:
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import) and any(name.name == package.name for name in node.names):
            yield f"line {node.lineno}: imports the whole package, which is above it"
        if isinstance(node, ast.ImportFrom) and node.module == package.name:
            for name in node.names:
                module = ROOT / package / name.name
                if name.name != "_native" and not (module.is_dir() or module.with_suffix(".py").is_file()):
                    yield f"line {node.lineno}: imports {name.name} from the package, which is above it"


def nothing_swallowed(path: Path, text: str) -> Iterator[str]:
    if path.suffix != ".py":
        return
    broad = {"Exception", "BaseException"}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            if node.type is None:
                yield f"line {node.lineno}: bare except"
            elif ast.unparse(node.type) in broad and all(isinstance(s, ast.Pass | ast.Continue) for s in node.body):
                yield f"line {node.lineno}: swallows every exception"
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func).endswith("suppress")
            and broad & {ast.unparse(argument) for argument in node.args}
        ):
            yield f"line {node.lineno}: suppresses every exception"


def no_place_of_one_machine(path: Path, text: str) -> Iterator[str]:
    for pattern, what in ((MACHINE_PATHS, "a path of one machine"), (REGISTRY_HOSTS, "a package registry")):
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"line {line}: names {what}: {match.group()}"


def links_resolve(path: Path, text: str) -> Iterator[str]:
    if path.suffix != ".md":
        return
    for target in LINK.findall(text):
        file, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target):
            continue  # the outside world; tests do not leave the machine
        linked = (ROOT / path).parent / file if file else ROOT / path
        if not linked.exists():
            yield f"links to {target}, which does not exist"
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text(encoding="utf-8")):
            yield f"links to {target}, but {linked.name} has no such heading"


def anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


RULES: tuple[Rule, ...] = (
    short_enough,
    name_says_something,
    module_has_docstring,
    nothing_sleeps,
    decoders_are_made_at_import,
    parts_not_the_whole,
    nothing_swallowed,
    no_place_of_one_machine,
    links_resolve,
)

# One file per row that the rule must refuse.
OFFENDERS: tuple[tuple[Rule, str, str], ...] = (
    (short_enough, "native/copy/long.cpp", "\n" * (LINES_LIMIT + 1)),
    (name_says_something, "src/x/string_utils.py", ""),
    (name_says_something, "native/common/a.h", ""),
    (module_has_docstring, "tests/test_x.py", "import os\n"),
    (nothing_sleeps, "src/x/a.py", "import time\ntime.sleep(1)\n"),
    (nothing_sleeps, "src/x/a.py", "from time import sleep\n"),
    (decoders_are_made_at_import, "src/x/a.py", "msgspec.json.decode(b'', type=A)\n"),
    (decoders_are_made_at_import, "src/x/a.py", "def f():\n    return msgspec.msgpack.Decoder(A)\n"),
    (parts_not_the_whole, "src/memfabric_hybrid/a.py", "import memfabric_hybrid as mf\n"),
    (parts_not_the_whole, "src/memfabric_hybrid/bm/a.py", "from memfabric_hybrid import initialize\n"),
    (nothing_swallowed, "tests/a.py", "try:\n    f()\nexcept:\n    g()\n"),
    (nothing_swallowed, "src/x/a.py", "try:\n    f()\nexcept Exception:\n    pass\n"),
    (nothing_swallowed, "src/x/a.py", "with contextlib.suppress(Exception):\n    f()\n"),
    (no_place_of_one_machine, "docs/a.md", "cd " + "/ro" + "ot/project"),
    (no_place_of_one_machine, "scripts/a", "'/wo" + "rk'"),
    (no_place_of_one_machine, "README.md", "https://pypi" + ".org/simple"),
    (links_resolve, "README.md", "[a](docs/no_such_page.md)"),
    (links_resolve, "CONTRIBUTING.md", "[a](CONTRIBUTING.md#no-such-heading)"),
)


def project_files() -> list[Path]:
    """What is, or is about to be, committed; relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True).stdout.split("\0")
        names = [Path(name) for name in listed if name]
    except (FileNotFoundError, subprocess.CalledProcessError):  # no git here, or an unpacked archive
        names = [path.relative_to(ROOT) for path in ROOT.rglob("*") if not is_made_by_tools(path.relative_to(ROOT))]
    return sorted(name for name in names if (ROOT / name).is_file())


def is_made_by_tools(path: Path) -> bool:
    hidden = path.parts[0].startswith(".") and path.parts[0] != ".ci"
    return hidden or path.parts[0] in ("build", "dist") or "__pycache__" in path.parts


def text_of(path: Path) -> str | None:
    try:
        return (ROOT / path).read_text(encoding="utf-8")
    except (UnicodeDecodeError, FileNotFoundError):
        return None  # a picture, or removed since it was listed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_file_obeys(rule: Rule) -> None:
    offences = []
    for path in project_files():
        text = text_of(path)
        if text is not None:
            offences += [f"{path}: {complaint}" for complaint in rule(path, text)]
    assert not offences, "\n" + "\n".join(offences)


@pytest.mark.parametrize(("rule", "path", "text"), OFFENDERS)
def test_rule_finds_an_offender(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Path(path), text))


def test_every_rule_has_an_offender() -> None:
    assert {rule for rule, _, _ in OFFENDERS} == set(RULES)


def test_changelog_opens_with_the_version_of_the_package() -> None:
    source = (ROOT / "src" / "memfabric_hybrid" / "__init__.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(.*)"$', source, re.MULTILINE)
    newest = re.search(r"^## \[?(\d[^\]\s]*)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert version
    assert newest
    assert newest[1] == version[1]


def test_builds_without_isolation_have_the_same_requirements() -> None:
    """`build-system.requires` is what pip installs for users, the group `build` what `scripts/environment` installs."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    requires = re.search(r"^requires = \[(.*)\]$", text, re.MULTILINE)
    group = re.search(r"^build = \[(.*)\]$", text, re.MULTILINE)
    assert requires
    assert group
    assert set(requires[1].split(", ")) <= set(group[1].split(", "))
