"""The earth mover's distance between two images, with a proof: exact, or between two bounds.

The cost is the Euclidean distance between pixels, and the images may be large: 64×64 takes tens of milliseconds, and
224×224 is within reach, where the matrix of all costs would take gigabytes. What makes it fast, none of which changes
the answer:

1. The cost is a metric, so what two images have in common can stay: W1(s, t) = W1((s - t)+, (t - s)+).
2. The problem with pixels merged two by two is solved first, and so on down to a few pixels. Its plan, spread over the
   finer pixels, is a plan for them, within some tenths of a percent of the best; its potentials, extended, a bound.
3. These tell which pairs of pixels can matter. The network simplex works on these few percent, from that plan on; then
   all pairs are priced, and those that would better the plan are added, until there is none.

Bonneel, van de Panne, Paris, Heidrich: Displacement interpolation using Lagrangian mass transport, 2011 (the simplex on
few pairs); Schmitzer: A sparse multiscale algorithm for dense optimal transport, 2016; Gottschlich, Schuhmacher: The
shortlist method, 2014.
"""

from xaibench.metrics.w1.multiscale import SolverProgress
from xaibench.metrics.w1.solver import Transport, exact_emd, interval_emd, warm_up

__all__ = ["SolverProgress", "Transport", "exact_emd", "interval_emd", "warm_up"]
