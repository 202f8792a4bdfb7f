import pathlib

from .certified.blind_networks import blind as blind
from .certified.disconnected_networks import disconnected as disconnected
from .certified.planted_triggers import checkerboard as checkerboard
from .certified.planted_triggers import plant_trigger as plant_trigger
from .certified.planted_triggers import triggered as triggered
from .mosaics.photo_mosaics import make_mosaics as make_mosaics
from .mosaics.photo_mosaics import select_confident as select_confident
from .watermarks.regimes import SmallCNN as SmallCNN
from .watermarks.regimes import WatermarkUse as WatermarkUse
from .watermarks.regimes import watermark_use as watermark_use
from .xai_tris.networks import CNN as CNN
from .xai_tris.networks import LLR as LLR
from .xai_tris.networks import MLP as MLP
from .xai_tris.published_accuracy import paper_accuracy as paper_accuracy
from .xai_tris.published_accuracy import paper_alpha as paper_alpha
from .xai_tris.released_pickles import read_released as read_released
from .xai_tris.released_pickles import write_released as write_released

def benchmark_files(pattern: str) -> list[pathlib.Path]: ...
