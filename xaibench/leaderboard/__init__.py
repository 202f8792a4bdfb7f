"""Leaderboard of explainers: submit a method, check and verify its result, and write the site of all results.

A *result* is one method on one version of a suite. A *results repository* is a folder (or a data set of the Hugging
Face Hub) of results. :func:`submit` writes a result, :func:`check` inspects it without running anything,
:func:`verify` runs the method again in a sandbox and compares the scores, and :func:`write_site` turns a repository
into a static site.
"""

from typing import TYPE_CHECKING, Any

from xaibench.core.lazy_names import load_public_name

if TYPE_CHECKING:
    from xaibench.leaderboard.checks import check
    from xaibench.leaderboard.manifest import ResultError
    from xaibench.leaderboard.run_splitting import split_run
    from xaibench.leaderboard.site.files import SiteError
    from xaibench.leaderboard.site.write import BuiltSite, write_site
    from xaibench.leaderboard.submission import SubmissionInfo, submit
    from xaibench.leaderboard.verdicts import Verification
    from xaibench.leaderboard.verification import verify
    from xaibench.leaderboard.verification_runs import VerifiedResult, verify_all

__all__ = [
    "BuiltSite",
    "ResultError",
    "SiteError",
    "SubmissionInfo",
    "Verification",
    "VerifiedResult",
    "check",
    "split_run",
    "submit",
    "verify",
    "verify_all",
    "write_site",
]

#: Public name -> module, loaded on first use: sandboxed processes import this package, and need neither pandas nor the
#: templates of the site. No module has the name of a public function, because importing it would hide the function.
_HOME = {
    "BuiltSite": "site.write",
    "ResultError": "manifest",
    "SiteError": "site.files",
    "SubmissionInfo": "submission",
    "Verification": "verdicts",
    "VerifiedResult": "verification_runs",
    "check": "checks",
    "split_run": "run_splitting",
    "submit": "submission",
    "verify": "verification",
    "verify_all": "verification_runs",
    "write_site": "site.write",
}


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return __all__
