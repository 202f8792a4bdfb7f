"""Sets and results to the Hugging Face Hub, and results back; sets come back through ``xaibench.load("hf://...")``.

Nothing is uploaded but by :func:`push_dataset`, :func:`push_run` and ``xaibench push``. The token is that of
``huggingface_hub`` (``hf auth login``, or ``$HF_TOKEN``): it is never printed, and files that hold it are not uploaded.
"""

from typing import TYPE_CHECKING, Any

from xaibench.core.public_names import public_name

if TYPE_CHECKING:
    from xaibench.hub.board.site_files import BoardError
    from xaibench.hub.board.site_writing import BuiltSite, write_board
    from xaibench.hub.licence import LicenceError
    from xaibench.hub.published_results import Results, load_results
    from xaibench.hub.results.checking import check_result
    from xaibench.hub.results.result_manifest import ResultError
    from xaibench.hub.results.run_splitting import results_of_run
    from xaibench.hub.results.submitting import Words, submit
    from xaibench.hub.results.verifying import Verification, verify
    from xaibench.hub.results.verifying_all import Verified, verify_all
    from xaibench.hub.run_upload import prepare_run
    from xaibench.hub.set_upload import prepare_dataset
    from xaibench.hub.uploading import HubError, Remote, Target, look, push_dataset, push_run, upload

__all__ = [
    "BoardError",
    "BuiltSite",
    "HubError",
    "LicenceError",
    "Remote",
    "ResultError",
    "Results",
    "Target",
    "Verification",
    "Verified",
    "Words",
    "check_result",
    "load_results",
    "look",
    "prepare_dataset",
    "prepare_run",
    "push_dataset",
    "push_run",
    "results_of_run",
    "submit",
    "upload",
    "verify",
    "verify_all",
    "write_board",
]

#: Name -> the module that has it, loaded when it is asked for: the process for somebody else's method, started for each
#: network, lies in here too, and has no use for what draws pages.
_HOME = {
    "BoardError": "board.site_files",
    "BuiltSite": "board.site_writing",
    "HubError": "uploading",
    "LicenceError": "licence",
    "Remote": "uploading",
    "ResultError": "results.result_manifest",
    "Results": "published_results",
    "Target": "uploading",
    "Verification": "results.verifying",
    "Verified": "results.verifying_all",
    "Words": "results.submitting",
    "check_result": "results.checking",
    "load_results": "published_results",
    "look": "uploading",
    "prepare_dataset": "set_upload",
    "prepare_run": "run_upload",
    "push_dataset": "uploading",
    "push_run": "uploading",
    "results_of_run": "results.run_splitting",
    "submit": "results.submitting",
    "upload": "uploading",
    "verify": "results.verifying",
    "verify_all": "results.verifying_all",
    "write_board": "board.site_writing",
}


def __getattr__(name: str) -> Any:
    return public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return __all__
