from part_cases import ExplainerCase

CASES = {"gradient_rollout": ExplainerCase(network="generators.networks:Attending")}
