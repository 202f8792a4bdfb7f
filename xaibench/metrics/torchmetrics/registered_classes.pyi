# Written by docs/generate/typing_stubs.py from the table of metrics.
from typing import Any

from xaibench.metrics.torchmetrics.class_bases import ExplainerScore, MapScore, ModelScore, TruthScore

class AUC(TruthScore):
    def __init__(self) -> None: ...

class Adversarial(ModelScore):
    def __init__(
        self,
        *,
        fraction: float = ...,
        epsilon: float = ...,
        steps: int = ...,
        step_size: float | None = ...,
        bounds: Any = ...,
        pixels: Any = ...,
        seed: int = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class AverageDrop(ModelScore):
    def __init__(
        self,
        *,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class AveragePrecision(TruthScore):
    def __init__(self) -> None: ...

class AveragePrecisionSkill(TruthScore):
    def __init__(self) -> None: ...

class CompletenessError(ModelScore):
    def __init__(
        self,
        *,
        baseline: Any = ...,
        relative: bool = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Complexity(MapScore):
    def __init__(self) -> None: ...

class Comprehensiveness(ModelScore):
    def __init__(
        self,
        *,
        fraction: Any = ...,
        baseline: Any = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class DataConsistency(ExplainerScore):
    def __init__(
        self,
        *,
        fraction: float = ...,
        n_samples: int = ...,
        relative: bool = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Deletion(ModelScore):
    def __init__(
        self,
        *,
        steps: int = ...,
        baseline: Any = ...,
        output: Any = ...,
        segmentation: Any = ...,
        n_segments: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class EMD(TruthScore):
    def __init__(
        self,
        *,
        workers: int = ...,
        time_limit: float | None = ...,
        progress: Any = ...,
    ) -> None: ...

class EMDPerformance(TruthScore):
    def __init__(
        self,
        *,
        diameter: Any = ...,
        workers: int = ...,
        time_limit: float | None = ...,
        progress: Any = ...,
    ) -> None: ...

class EMDSkill(TruthScore):
    def __init__(
        self,
        *,
        workers: int = ...,
        time_limit: float | None = ...,
    ) -> None: ...

class EfficientMPRT(ExplainerScore):
    def __init__(
        self,
        *,
        n_bins: int = ...,
        magnitude: bool = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class F1(TruthScore):
    def __init__(
        self,
        *,
        threshold: float = ...,
    ) -> None: ...

class FFidelity(ModelScore):
    def __init__(
        self,
        *,
        sizes: Any = ...,
        alpha: float = ...,
        beta: float = ...,
        n_samples: int = ...,
        side: Any = ...,
        baseline: Any = ...,
        seed: int = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class GridPointing(TruthScore):
    def __init__(self) -> None: ...

class Hit(TruthScore):
    def __init__(
        self,
        *,
        tolerance: float = ...,
    ) -> None: ...

class IDSDS(ModelScore):
    def __init__(
        self,
        *,
        grid: int = ...,
        baseline: Any = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class IncreaseInConfidence(ModelScore):
    def __init__(
        self,
        *,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Infidelity(ModelScore):
    def __init__(
        self,
        *,
        perturbation: Any = ...,
        n_samples: int = ...,
        sigma: float = ...,
        rescale: bool = ...,
        seed: int = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Insertion(ModelScore):
    def __init__(
        self,
        *,
        steps: int = ...,
        baseline: Any = ...,
        output: Any = ...,
        segmentation: Any = ...,
        n_segments: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class IoU(TruthScore):
    def __init__(
        self,
        *,
        threshold: float = ...,
    ) -> None: ...

class IoUSkill(TruthScore):
    def __init__(
        self,
        *,
        threshold: float = ...,
        scaled: bool = ...,
    ) -> None: ...

class Leak(TruthScore):
    def __init__(self) -> None: ...

class MassAccuracy(TruthScore):
    def __init__(self) -> None: ...

class ParameterRandomisation(ExplainerScore):
    def __init__(
        self,
        *,
        magnitude: bool = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Precision(TruthScore):
    def __init__(
        self,
        *,
        threshold: float = ...,
    ) -> None: ...

class PrecisionSkill(TruthScore):
    def __init__(self) -> None: ...

class ROAD(ModelScore):
    def __init__(
        self,
        *,
        percentiles: Any = ...,
        order: Any = ...,
        noise: float = ...,
        seed: int = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class RandomLogit(ExplainerScore):
    def __init__(
        self,
        *,
        similarity: Any = ...,
        magnitude: bool = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Recall(TruthScore):
    def __init__(
        self,
        *,
        threshold: float = ...,
    ) -> None: ...

class SRG(ModelScore):
    def __init__(
        self,
        *,
        steps: int = ...,
        baseline: Any = ...,
        output: Any = ...,
        segmentation: Any = ...,
        n_segments: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class SaCo(ModelScore):
    def __init__(
        self,
        *,
        groups: int = ...,
        baseline: Any = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class SensitivityMax(ExplainerScore):
    def __init__(
        self,
        *,
        radius: float = ...,
        n_samples: int = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class SmoothMPRT(ExplainerScore):
    def __init__(
        self,
        *,
        n_samples: int = ...,
        noise: float = ...,
        magnitude: bool = ...,
        seed: int = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class Sparseness(MapScore):
    def __init__(self) -> None: ...

class Sufficiency(ModelScore):
    def __init__(
        self,
        *,
        fraction: Any = ...,
        baseline: Any = ...,
        output: Any = ...,
        batch_size: int | None = ...,
    ) -> None: ...

class TopKPrecision(TruthScore):
    def __init__(self) -> None: ...

class UseAP(TruthScore):
    def __init__(self) -> None: ...

class UseAUC(TruthScore):
    def __init__(self) -> None: ...
