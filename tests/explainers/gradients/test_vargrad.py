from part_cases import ExplainerCase

CASES = {"vargrad": ExplainerCase(parameters={"n_samples": 4})}
