from part_cases import ExplainerCase

CASES = {"conservative_input_x_gradient": ExplainerCase(network="generators.networks:Attending")}
