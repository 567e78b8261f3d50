"""Comments, docstrings and pages are read once: a program finds some habits that make sentences be read twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.structure import prose

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("weft", "benchmarks", "docs", "examples", "packaging")


def test_no_file_has_a_habit_that_is_found() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in prose.KINDS]
    pages = list(ROOT.glob("*.md"))
    found = [f"{path.relative_to(ROOT)}:{habit}" for path in sorted([*files, *pages]) for habit in prose.found_in(path)]
    assert len(files) > 1000
    assert not found, "\n".join(found)


def test_a_place_is_where_an_array_lives() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in prose.KINDS]
    named = [(path, str(path.relative_to(ROOT))) for path in sorted(files)]
    named = [(path, name) for path, name in named if not name.startswith("docs/reference/")]  # made of docstrings
    found = [f"{name}:{use}" for path, name in named for use in prose.other_places(path, name)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "uses"),
    [
        ("for place, x in enumerate(args):\n", 1),
        ("# symbols in place of sizes, and in place\n# of extents\n", 2),
        ("class Places:\n    kPlace = FAR_PLACES = row_places = 1\n", 4),
        ("# updated in\n# place, units in the last place, x.place\nkept_in_place = replaced = placed\n", 0),
    ],
)
def test_other_places_are_found(tmp_path: Path, text: str, uses: int) -> None:
    (tmp_path / "a.py").write_text(text)
    assert len(list(prose.other_places(tmp_path / "a.py", "weft/a.py"))) == uses
    assert not list(prose.other_places(tmp_path / "a.py", "weft/dispatch/a.py"))


@pytest.mark.parametrize(
    ("name", "text", "habit"),
    [
        ("a.py", "# arrays of\n# which all are read\n", "'of which'"),
        ("a.py", 'def f():\n    """Sums.\n\n    Of which one is kept.\n    """\n', "'of which'"),
        ("a.py", 'raise ValueError("a file of which nothing is known")\n', "'of which'"),
        ("a.py", "x = 1\n\n# rows whose own sums are kept\n", "'whose own'"),
        ("a.py", "def f():  # some lanes end, others do not.\n    return 1\n", "a 'not' at the end"),
        ("a.py", '"""Some rows are read; others are not\n\nMore.\n"""\n', "a 'not' at the end"),
        ("a.py", 'def f():\n    """The length; of a\n    pair both.\n    """\n', "'of' at the beginning"),
        ("a.h", "// Of several lanes the first counts.\nint x;\n", "'of' at the beginning"),
        ("a.py", "# the first if it is there,\n# else the last\n", "'else'"),
        ("a.py", "MOST = 8  # of a chain\n", "a constant"),
        ("a.py", "FEW = 8  # rows\n# the same of columns\nLEAST: int = 1 << 4\n", "a constant"),
        ("a.h", "// Some lanes end,\n// others do not.\nint x;\n", "a 'not' at the end"),
        ("a.cpp", "constexpr int64_t kMost = 4 << 10;  // of a row\n", "a constant"),
        ("a.md", "- Rows, of\n  which some are read.\n", "'of which'"),
    ],
)
def test_habits_are_found(tmp_path: Path, name: str, text: str, habit: str) -> None:
    (tmp_path / name).write_text(text)
    found = list(prose.found_in(tmp_path / name))
    assert len(found) == 1 and habit in found[0], found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", 'MOST = 8  # kernels of a chain\nraise ValueError(f"{x} must be given, not " "of")\n'),
        ("a.py", '"""Whether a value is there or not.\n\n    x -> bitwise not\n\nMore.\n"""\n# the reason why not\n'),
        (
            "a.py",
            "x = 'not'\nKINDS = (A, B)  # of a nest\nif x is not None:  # a not that has more behind it\n    pass\n",
        ),
        ("a.cpp", "if (a) {\n  b(); } // one\nelse c();\n"),
        ("a.cpp", 'auto address = "http://of.which";\nconst int x = f(1);  // of a row\n'),
        ("a.md", "```\nof which\n```\n"),
    ],
)
def test_plain_sentences_are_none(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert not list(prose.found_in(tmp_path / name))
