"""The manifest of a result: what it says is read back, and what does not fit the schema is named."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from xaibench.leaderboard.manifest import (
    Manifest,
    MethodInfo,
    ResultError,
    SuiteVersion,
    find_results,
    manifest_schema,
    read_manifest,
    schema_violations,
)
from xaibench.leaderboard.score_files import MANIFEST

VERSION = "0123abcd" * 4
GOOD = Manifest(
    MethodInfo("gxi", "G × I", "mine:gxi"),
    SuiteVersion("tiny", VERSION),
    "2026-11-23",
)

SPOILT = [
    (("schema",), 1, "schema is 1, expected 5"),
    (("method", "name"), "../x", "method.name is '../x', expected a text like"),
    (("method", "passes"), True, "method.passes is True, expected integer or null"),
    (("method", "authors"), [1], "entry 0 of method.authors is 1, expected string"),
    (("method", "labl"), "x", "method has 'labl', which is not known; did you mean 'label'?"),
    (("suite", "version"), "xyz", "suite.version is 'xyz'"),
    (("round",), "../../x", "round is '../../x'"),
    (("code", "repository"), "javascript:x", "code.repository is 'javascript:x'"),
    (("code", "sha256"), "1", "code.sha256 is '1'"),
]


def write(folder, manifest):
    pq.write_table(pa.table({"value": [0.5]}).replace_schema_metadata({MANIFEST: manifest}), folder / "scores.parquet")


def test_what_is_written_is_read(tmp_path):
    write(tmp_path, GOOD.to_json())
    assert read_manifest(tmp_path) == GOOD
    assert GOOD.folder == f"gxi/tiny@{VERSION}"


@pytest.mark.parametrize(("path", "value", "said"), SPOILT)
def test_what_does_not_fit_is_named(path, value, said, tmp_path):
    content = json.loads(GOOD.to_json())
    inside = content
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    write(tmp_path, json.dumps(content))
    with pytest.raises(ResultError) as caught:
        read_manifest(tmp_path)
    assert said in str(caught.value)


@pytest.mark.parametrize(("path", "value", "_"), SPOILT)
def test_the_schema_says_the_same_to_a_validator_of_json_schema(path, value, _):
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(manifest_schema())
    content = json.loads(GOOD.to_json())
    assert validator.is_valid(content)
    inside = content
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    assert not validator.is_valid(content)
    assert list(schema_violations(content, manifest_schema()))


def test_a_manifest_that_is_none_is_an_error(tmp_path):
    with pytest.raises(ResultError, match=r"contains no results: no METHOD/SUITE@VERSION/scores\.parquet below it"):
        find_results(tmp_path)
    with pytest.raises(ResultError, match="no such folder"):
        find_results(tmp_path / "nowhere")
    with pytest.raises(ResultError, match=r"scores\.parquet cannot be read"):
        read_manifest(tmp_path)
    write(tmp_path, "[")
    with pytest.raises(ResultError, match=r"The manifest in .* cannot be read"):
        read_manifest(tmp_path)
