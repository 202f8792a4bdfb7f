"""Earth mover's distance between two images or volumes with a proof: exact, or as a lower and an upper bound.

The cost is the Euclidean distance between pixels, in the unit of their spacing. Images may be large: 64×64 takes tens
of milliseconds, and 224×224 is feasible, where the full cost matrix would need gigabytes. Three exact reductions make
it fast:

1. The cost is a metric, so mass that two images have in common can stay in place: W1(s, t) = W1((s - t)+, (t - s)+).
2. The problem with pixels merged two by two is solved first, recursively down to a few pixels. Its plan, spread over
   the finer pixels, is a plan for them, within some tenths of a percent of the optimum; its potentials give a bound.
3. Both show which pairs of pixels can matter. The network simplex starts from that plan and uses only these few percent
   of the pairs. Then all pairs are priced, and pairs that would improve the plan are added, until none is left.

With a *pool* of mass that is free everywhere in the target (:func:`emd_with_free_mass`), the first does not hold, and
is not needed; the pool is one more source.

Bonneel, van de Panne, Paris, Heidrich: Displacement interpolation using Lagrangian mass transport, 2011 (the simplex on
few pairs); Schmitzer: A sparse multiscale algorithm for dense optimal transport, 2016; Gottschlich, Schuhmacher: The
shortlist method, 2014.
"""

from xaibench.kernels.emd.multiscale import SolverProgress
from xaibench.kernels.emd.solver import Transport, emd_with_free_mass, exact_emd, interval_emd, warm_up

__all__ = ["SolverProgress", "Transport", "emd_with_free_mass", "exact_emd", "interval_emd", "warm_up"]
