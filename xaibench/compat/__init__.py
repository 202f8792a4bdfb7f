"""Functions with the interface of other packages, so that existing code only needs another import.

:mod:`xaibench.compat.xaibenchmark` has the functions of Saliency-Bench. A method written for EXACT's template,
``XAI_Method(data, target, model)``, is accepted as an explainer without an adapter.
"""

__all__: list[str] = []
