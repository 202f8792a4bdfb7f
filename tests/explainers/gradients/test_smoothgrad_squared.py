from part_cases import ExplainerCase

CASES = {"smoothgrad_squared": ExplainerCase(parameters={"n_samples": 4})}
