"""Images for networks whose used pixels are known by construction (:mod:`xaibench.benchmarks.certified.hand_set_networks`)."""
