"""The printed table of PatternGAM, for the four of its methods that explain a network.

Clark et al.: Correcting misinterpretations of additive models, NeurIPS 2025; with the three decimals of the
evaluation notebook of its code repository. Means and standard deviations over five data sets of 10,000 images, of a
perceptron with three hidden layers. The other twelve methods explain additive models and kernel machines.
"""

from __future__ import annotations

from collections.abc import Mapping

#: Importance mass accuracy and FNI-EMD.
METRICS = ("mass_accuracy", "fni_emd")
#: In the order of the table. Its SHAP is Deep SHAP.
METHODS = ("integrated_gradients", "deep_shap", "pattern_net", "pattern_attribution")
#: One row per cell and method: the mean and standard deviation of each of :data:`METRICS`.
_ROWS = """
lin  plain-white integrated_gradients .971 .009 .990 .004
lin  plain-white deep_shap            .736 .056 .909 .020
lin  plain-white pattern_net          .711 .156 .902 .054
lin  plain-white pattern_attribution  .961 .048 .987 .016
lin  plain-corr  integrated_gradients .857 .036 .960 .009
lin  plain-corr  deep_shap            .448 .041 .851 .024
lin  plain-corr  pattern_net          .397 .191 .792 .068
lin  plain-corr  pattern_attribution  .418 .171 .805 .071
lin  dist-white  integrated_gradients .949 .014 .987 .003
lin  dist-white  deep_shap            .538 .090 .882 .026
lin  dist-white  pattern_net          .802 .112 .940 .033
lin  dist-white  pattern_attribution  .933 .076 .977 .028
lin  dist-corr   integrated_gradients .797 .050 .948 .013
lin  dist-corr   deep_shap            .431 .034 .853 .023
lin  dist-corr   pattern_net          .316 .141 .761 .054
lin  dist-corr   pattern_attribution  .373 .131 .801 .066
mult plain-white integrated_gradients .932 .017 .977 .006
mult plain-white deep_shap            .647 .068 .879 .026
mult plain-white pattern_net          .324 .091 .763 .037
mult plain-white pattern_attribution  .846 .117 .947 .047
mult plain-corr  integrated_gradients .481 .005 .872 .003
mult plain-corr  deep_shap            .389 .095 .821 .040
mult plain-corr  pattern_net          .111 .027 .691 .012
mult plain-corr  pattern_attribution  .369 .120 .817 .048
mult dist-white  integrated_gradients .930 .018 .976 .006
mult dist-white  deep_shap            .644 .073 .879 .028
mult dist-white  pattern_net          .341 .089 .771 .036
mult dist-white  pattern_attribution  .863 .099 .954 .032
mult dist-corr   integrated_gradients .477 .007 .876 .003
mult dist-corr   deep_shap            .389 .075 .823 .035
mult dist-corr   pattern_net          .120 .039 .695 .018
mult dist-corr   pattern_attribution  .394 .119 .829 .055
xor  plain-white integrated_gradients .822 .082 .940 .029
xor  plain-white deep_shap            .605 .085 .866 .035
xor  plain-white pattern_net          .753 .152 .915 .054
xor  plain-white pattern_attribution  .977 .021 .992 .007
xor  plain-corr  integrated_gradients .759 .122 .929 .035
xor  plain-corr  deep_shap            .365 .088 .794 .046
xor  plain-corr  pattern_net          .554 .203 .848 .074
xor  plain-corr  pattern_attribution  .780 .192 .927 .068
xor  dist-white  integrated_gradients .672 .114 .911 .030
xor  dist-white  deep_shap            .492 .070 .859 .022
xor  dist-white  pattern_net          .739 .139 .911 .050
xor  dist-white  pattern_attribution  .927 .061 .978 .022
xor  dist-corr   integrated_gradients .767 .119 .937 .032
xor  dist-corr   deep_shap            .381 .048 .821 .031
xor  dist-corr   pattern_net          .560 .209 .854 .073
xor  dist-corr   pattern_attribution  .818 .115 .952 .035
"""
#: ``{(subset, variant, method): {metric: (mean, standard deviation)}}``.
TABLE: Mapping[tuple[str, str, str], Mapping[str, tuple[float, float]]] = {
    (row[0], row[1], row[2]): {
        metric: (float(row[3 + 2 * i]), float(row[4 + 2 * i])) for i, metric in enumerate(METRICS)
    }
    for row in (line.split() for line in _ROWS.split("\n") if line)
}
