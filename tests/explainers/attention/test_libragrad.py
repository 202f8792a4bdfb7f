from part_cases import ExplainerCase

CASES = {"libragrad": ExplainerCase(network="generators.networks:Attending")}
