"""A result as a careful forger would write it."""

import dataclasses

from xaibench.hub.results.result_manifest import MANIFEST, files_of, read_manifest, sum_of_code


def rewritten(folder, **changes):
    """The folder, with the sums of its files as they now are."""
    files, manifest = files_of(folder), read_manifest(folder)
    code = dataclasses.replace(manifest.code, sha256=sum_of_code(files))
    changed = dataclasses.replace(manifest, **{"files": files, "code": code} | changes)
    (folder / MANIFEST).write_bytes(changed.to_json())
    return folder
