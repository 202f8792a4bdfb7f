"""Sets and results to the Hugging Face Hub, and results back; sets come back through ``xaibench.load("hf://...")``.

Nothing is uploaded but by :func:`push_dataset`, :func:`push_run` and ``xaibench push``. The token is that of
``huggingface_hub`` (``hf auth login``, or ``$HF_TOKEN``): it is never printed, and files that hold it are not uploaded.
"""

from xaibench.hub.board.site_files import BoardError
from xaibench.hub.board.site_writing import BuiltSite, write_board
from xaibench.hub.licence import LicenceError
from xaibench.hub.published_results import Results, load_results
from xaibench.hub.run_upload import prepare_run
from xaibench.hub.set_upload import prepare_dataset
from xaibench.hub.uploading import HubError, Remote, Target, look, push_dataset, push_run, upload

__all__ = [
    "BoardError",
    "BuiltSite",
    "HubError",
    "LicenceError",
    "Remote",
    "Results",
    "Target",
    "load_results",
    "look",
    "prepare_dataset",
    "prepare_run",
    "push_dataset",
    "push_run",
    "upload",
    "write_board",
]
