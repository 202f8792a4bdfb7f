"""Lines of the entries of a TOML file: right, or none."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from xaibench.runner.suites.files import SUITES, built_in_file
from xaibench.runner.suites.toml_positions import entry_lines
from xaibench.runner.suites.toml_writing import to_toml

TRAPS = (
    """\
# name = "not this"
name = "a # is no comment" # [neither]
"quoted key" = 'it''s' # is two""".replace("'it''s'", "'its'")
    + '''
text = """
training = "not here"
[explainers]
"""
literal = \'\'\'
x = 1 \\\'\'\'
a.b.c = 1
a.b."d.e" = [ # one
  { x = 1 }, # two ]
  { x = "]", y = { z = [
    3,
  ] } },
]

[training] # [training]
seeds = [0, 1]
[[cells]]
datasets = ["x]",
            "y"]
  [cells.data]
  alpha = 1
[[cells]]
models = []
data.alpha = 2
[[cells.parts]]
[ explainers . "my.own" ]
use = "a:b"
when = 2024-01-01T00:00:00Z
'''
)


def test_every_entry_has_its_own_line():
    lines = entry_lines(TRAPS)
    rows = TRAPS.split("\n")
    assert lines["name",] == 2
    assert lines["quoted key",] == 3
    assert rows[lines["literal",] - 1].startswith("literal")
    assert rows[lines["a", "b", "c"] - 1] == "a.b.c = 1"
    assert rows[lines["a", "b", "d.e"] - 1].startswith('a.b."d.e"')
    assert "# two" in rows[lines["a", "b", "d.e", 0, "x"] - 1]
    assert rows[lines["a", "b", "d.e", 1, "y", "z", 0] - 1] == "    3,"
    assert rows[lines["training",] - 1].startswith("[training]")
    assert rows[lines["training", "seeds"] - 1] == "seeds = [0, 1]"
    assert rows[lines["cells", 0, "datasets", 1] - 1].endswith('"y"]')
    assert rows[lines["cells", 0, "data", "alpha"] - 1] == "  alpha = 1"
    assert rows[lines["cells", 1, "data", "alpha"] - 1] == "data.alpha = 2"
    assert lines["cells", 0] < lines["cells", 1] < lines["cells", 1, "parts", 0]
    assert rows[lines["explainers", "my.own"] - 1].startswith("[ explainers")
    assert rows[lines["explainers", "my.own", "use"] - 1] == 'use = "a:b"'


@pytest.mark.parametrize("name", SUITES)
def test_built_in_suites_have_lines(name):
    text = built_in_file(name).read_text(encoding="utf-8")
    lines, rows = entry_lines(text), text.split("\n")
    assert lines
    for path, line in lines.items():
        if isinstance(path[-1], str):
            assert path[-1] in rows[line - 1], path


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SCALARS = st.one_of(KEYS, st.booleans(), st.integers(), st.floats(allow_nan=False), st.datetimes())
VALUES = st.recursive(SCALARS, lambda of: st.lists(of, max_size=3) | st.dictionaries(KEYS, of, max_size=3))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_nothing_in_a_text_leads_astray(table):
    text = to_toml(table)
    lines = entry_lines(text)
    assert lines or not table
    for name in table:
        begun = "\n".join(text.split("\n")[lines[name,] - 1 :])
        assert text.split("\n")[lines[name,] - 1]
        if not isinstance(table[name], dict | list):
            assert tomllib.loads(begun.split("\n[")[0] if begun.startswith("[") else begun.split("\n")[0]) == {
                name: table[name]
            }


def test_no_line_rather_than_a_wrong_one(monkeypatch):
    from xaibench.runner.suites import toml_positions as module

    monkeypatch.setattr(module._Scanner, "_header", lambda self: (self._match(module._NAME), ("lost",))[1])
    assert entry_lines("[a]\nx = 1\n[b]\nx = 2") == {}
