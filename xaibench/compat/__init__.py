"""The calls of other packages, for code that was written for them: a line of import is all that changes.

:mod:`xaibench.compat.xaibenchmark` has those of Saliency-Bench. A method written to EXACT's template,
``XAI_Method(data, target, model)``, needs none: it is accepted wherever an explainer is.
"""

__all__: list[str] = []
