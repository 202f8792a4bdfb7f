"""Upload data sets and runs to the Hugging Face Hub, and load results of runs from it.

Uploaded data sets are loaded with ``xaibench.load("hf://owner/name")``. Nothing is uploaded except by
:func:`push_dataset`, :func:`push_run` and ``xaibench push``. They use the token of ``huggingface_hub`` (``hf auth
login`` or ``$HF_TOKEN``), never print it, and refuse files that contain it.
"""

from typing import TYPE_CHECKING, Any

from xaibench.core.lazy_names import load_public_name

if TYPE_CHECKING:
    from xaibench.hub.license import LicenseError
    from xaibench.hub.published_results import Results, load_results
    from xaibench.hub.run_upload import prepare_run
    from xaibench.hub.set_upload import prepare_dataset
    from xaibench.hub.uploading import HubError, Remote, Target, inspect_remote, push_dataset, push_run, upload

__all__ = [
    "HubError",
    "LicenseError",
    "Remote",
    "Results",
    "Target",
    "inspect_remote",
    "load_results",
    "prepare_dataset",
    "prepare_run",
    "push_dataset",
    "push_run",
    "upload",
]

#: Public name -> module, loaded on first use.
_HOME = {
    "HubError": "uploading",
    "LicenseError": "license",
    "Remote": "uploading",
    "Results": "published_results",
    "Target": "uploading",
    "inspect_remote": "uploading",
    "load_results": "published_results",
    "prepare_dataset": "set_upload",
    "prepare_run": "run_upload",
    "push_dataset": "uploading",
    "push_run": "uploading",
    "upload": "uploading",
}


def __getattr__(name: str) -> Any:
    return load_public_name(__name__, name, _HOME)


def __dir__() -> list[str]:
    return __all__
