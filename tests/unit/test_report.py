from __future__ import annotations

import ast
from pathlib import Path

from tests import report


def parsed(**sources):
    return {
        Path(*name.split("__")).with_suffix(".py"): ast.parse(code) for name, code in sources.items()
    }


def test_circles_are_of_files_that_reach_each_other():
    package = report.PACKAGE.name
    files = parsed(
        a__one=f"from {package}.a import two",
        a__two=f"def f():\n    from {package}.b.three import x",
        b__three=f"import {package}.a.one",
        b__four=f"from {package}.a.one import y",
    )
    assert report.circles(files) == [[f"{package}.{name}" for name in ("a.one", "a.two", "b.three")]]
    assert report.circles(files, at_load=True) == []
    files |= parsed(b__two=f"from {package}.b import five", b__five=f"if x:\n    import {package}.b.two")
    assert report.circles(files, at_load=True) == [[f"{package}.b.five", f"{package}.b.two"]]


def test_names_are_counted_by_room():
    files = parsed(a__x="found = one", a__y="def f(kept): return paths", z="commit = known.given")
    empty, uses = report.empty_names(files)
    assert (empty, uses) == ({"a": 3, ".": 1}, {"a": 4, ".": 2})


def test_a_class_name_in_two_files_is_doubled():
    files = parsed(a="class A: pass\nclass B: pass", b="class A: pass")
    assert report.doubled_classes(files) == {"A": [Path("a.py"), Path("b.py")]}
