"""Figures of the code, for people to judge: ``python -m tests.report [--without-a-write]``.

Lines of each room, what the simplest write passes (see ``write_cost``), empty names, class names that
stand twice, and circles of files. Nothing of it is a limit.
"""

from __future__ import annotations

import argparse
import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_occ_provider"
EMPTY = frozenset(("one", "found", "given", "known", "own", "seen", "kept", "left", "asked"))
"""Local names that say nothing of their values."""


def trees(folder: Path = PACKAGE) -> dict[Path, ast.Module]:
    """Return the files of a folder, parsed, by their paths within it."""
    return {
        path.relative_to(folder): ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))
    }


def room_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else "."


def lines_of_rooms(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the files and lines of each room of a folder."""
    files, lines = Counter[str](), Counter[str]()
    for path in folder.rglob("*.py"):
        room = room_of(path.relative_to(folder))
        files[room] += 1
        lines[room] += len(path.read_text().splitlines())
    return {room: (files[room], lines[room]) for room in sorted(files)}


def empty_names(files: Mapping[Path, ast.Module]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how often rooms use an empty name, and a name at all."""
    empty, uses = Counter[str](), Counter[str]()
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Name | ast.arg):
                name = node.id if isinstance(node, ast.Name) else node.arg
                uses[room_of(path)] += 1
                empty[room_of(path)] += name in EMPTY
    return empty, uses


def doubled_classes(files: Mapping[Path, ast.Module]) -> dict[str, list[Path]]:
    """Return the class names that stand in more than one place, with their files."""
    places = defaultdict(list)
    for path, tree in files.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def circles(files: Mapping[Path, ast.Module], *, at_load: bool = False) -> list[list[str]]:
    """Return the groups of files that import each other, also within functions or for types alone.

    :param at_load: count only what a file loads with it.
    """
    modules = {_module(path): tree for path, tree in files.items()}
    nodes = _loaded if at_load else ast.walk
    imports = {name: _imports(nodes(tree), modules) - {name} for name, tree in modules.items()}
    reached = {name: _reached(name, imports) for name in imports}
    groups = {frozenset(other for other in reached[name] if name in reached[other]) for name in imports}
    return sorted(sorted(group) for group in groups if len(group) > 1)


def _module(path: Path) -> str:
    return ".".join((PACKAGE.name, *path.with_suffix("").parts)).removesuffix(".__init__")


def _loaded(tree: ast.Module) -> Iterator[ast.AST]:
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    for statement in tree.body:
        is_for_types = isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.dump(statement.test)
        if not (is_for_types or isinstance(statement, later)):
            yield from ast.walk(statement)


def _imports(nodes: Iterable[ast.AST], modules: Collection[str]) -> set[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            members = [f"{node.module}.{alias.name}" for alias in node.names]
            names.update(member if member in modules else str(node.module) for member in members)
    return names.intersection(modules)


def _reached(start: str, imports: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [start]
    while waiting:
        further = imports[waiting.pop()] - reached
        reached |= further
        waiting += further
    return reached


def _print_lines(title: str, folder: Path) -> None:
    rooms = lines_of_rooms(folder)
    files, lines = (sum(column) for column in zip(*rooms.values(), strict=True))
    print(f"\n{title}: {lines:,} lines in {files} files")
    for room, (of_files, of_lines) in rooms.items():
        print(f"  {of_lines:>7,} {of_files:>4} {room}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.report", description=__doc__)
    parser.add_argument("--without-a-write", action="store_true", help="start no service")
    arguments = parser.parse_args()
    files = trees()
    _print_lines("package", PACKAGE)
    _print_lines("tests", ROOT / "tests")
    empty, uses = empty_names(files)
    share = 100 * sum(empty.values()) / sum(uses.values())
    print(f"\nempty names: {share:.2f} per 100 uses ({sum(empty.values()):,} of {sum(uses.values()):,})")
    for room in sorted(empty, key=lambda room: -empty[room]):
        print(f"  {100 * empty[room] / uses[room]:>7.2f} {empty[room]:>4} {room}")
    doubled = doubled_classes(files)
    print(f"\nclass names that stand twice: {len(doubled)}")
    for name, paths in doubled.items():
        print(f"  {name}: {', '.join(map(str, paths))}")
    rounds = circles(files)
    print(f"\ncircles of files: {len(rounds)}")
    for group in rounds:
        print(f"  {', '.join(group)}")
    if not arguments.without_a_write:
        from tests import write_cost

        write_cost.main()


if __name__ == "__main__":
    main()
