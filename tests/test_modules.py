"""No file uses one that uses it, over however many others: of the Rust crates and of the Python package."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CRATE = ROOT / "rust" / "core" / "src"
BINDING = ROOT / "rust" / "python" / "src"
PACKAGE = ROOT / "python" / "compcodes"


def knots(uses):
    """The sets of modules that use each other, by Tarjan's algorithm; `uses` has the modules that each one uses."""
    number, lowest, stack, found = {}, {}, [], []

    def visit(module):
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in uses.get(module, ()):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(uses):
        if module not in number:
            visit(module)
    return found


class Crate:
    """The modules of the Rust crate, and what they use outside of tests."""

    def __init__(self, folder):
        self.text = {}
        for file in folder.rglob("*.rs"):
            path = file.relative_to(folder).with_suffix("").parts
            path = path[:-1] if path[-1] in ("mod", "lib") else path
            if "tests" not in path[-1:] and path[-1:] != ("change_tests",):
                self.text[path] = self.without_tests(file.read_text())
        self.shown = {path: self.reexports(path) for path in self.text}

    @staticmethod
    def without_tests(text):
        text = re.sub(r"//.*", "", text)
        return re.split(r"#\[cfg\((?:all\()?test", text)[0]

    @staticmethod
    def paths(tree):
        """The paths of `a::{b, c::d}`, as tuples."""
        tree = re.sub(r"\s+", " ", tree.strip())
        if "{" not in tree:
            yield tuple(part.split(" as ")[0].strip() for part in tree.split("::"))
            return
        head, body = tree.split("{", 1)
        depth, piece = 0, ""
        for char in body[: body.rindex("}")] + ",":
            depth += (char == "{") - (char == "}")
            if char == "," and depth == 0:
                if piece.strip():
                    for path in Crate.paths(piece):
                        yield tuple(part.strip() for part in head.split("::") if part.strip()) + path
                piece = ""
            else:
                piece += char

    def reexports(self, module):
        """Names that a module shows of others: name to path."""
        uses = re.findall(r"pub(?:\([^)]*\))? use ([^;]+);", self.text[module])
        return {path[-1]: path for tree in uses for path in self.paths(tree)}

    def resolve(self, module, path):
        """The module that a path means, as seen from `module`; None where it is not of the crate."""
        base, rest = module, list(path)
        if rest[0] == "crate":
            base, rest = (), rest[1:]
        elif rest[0] == "self":
            rest = rest[1:]
        while rest and rest[0] == "super":
            base, rest = base[:-1], rest[1:]
        if path[0] not in ("crate", "self", "super") and module + path[:1] not in self.text:
            return None
        while rest and (*base, rest[0]) in self.text:
            base, rest = (*base, rest[0]), rest[1:]
        if rest and rest[0] in self.shown.get(base, {}):
            shown = self.shown[base][rest[0]]
            if shown[-1] != "self":
                return self.resolve(base, shown)
        return base

    def uses(self):
        found = defaultdict(set)
        for module, text in self.text.items():
            own = re.sub(r"pub(?:\([^)]*\))? use [^;]+;", "", text)
            trees = [path for tree in re.findall(r"\buse ([^;]+);", own) for path in self.paths(tree)]
            inline = [tuple(path.split("::")) for path in re.findall(r"\b(?:crate|super|self)(?:::\w+)+", own)]
            for path in trees + inline:
                other = self.resolve(module, path)
                if other is not None and other != module:
                    found["::".join(module) or "lib"].add("::".join(other) or "lib")
        return found


def imports(folder):
    """What each module of the package imports, at its top or in a function; but for types alone."""
    found = defaultdict(set)
    modules = {}
    for file in folder.rglob("*.py"):
        parts = file.relative_to(folder.parent).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    for module, file in modules.items():
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
                node.body = []
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            for name in names:
                while name and name not in modules:
                    name = name.rpartition(".")[0]
                if name and name != module and file.name != "__init__.py":
                    found[module].add(name)
    return found


def test_knots_are_found():
    assert knots({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert knots({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.skipif(not CRATE.is_dir(), reason="the crate is not here")
@pytest.mark.parametrize("folder", [CRATE, BINDING], ids=["crate", "binding"])
def test_no_file_of_the_crates_uses_one_that_uses_it(folder):
    assert knots(Crate(folder).uses()) == []


def test_no_file_of_the_package_imports_one_that_imports_it():
    assert knots(imports(PACKAGE)) == []


ORDER = re.findall(r"^(?:pub )?mod (\w+);", (CRATE / "lib.rs").read_text(), re.M) if CRATE.is_dir() else []


@pytest.mark.skipif(not ORDER, reason="the crate is not here")
def test_modules_use_those_above_them_as_lib_rs_says():
    assert {"error", "vectors", "encode", "index", "io"} <= set(ORDER)
    uses = Crate(CRATE).uses()
    tops = {(one.split("::")[0], other.split("::")[0]) for one in uses for other in uses[one]}
    assert [(one, other) for one, other in tops if other != "lib" and ORDER.index(other) > ORDER.index(one)] == []
