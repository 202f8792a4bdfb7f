const themeButton = document.getElementById("theme");
const boardTables = Array.from(document.querySelectorAll("[data-truth] .board"));
const pairsView = document.getElementById("pairs-view");
const samplesView = document.getElementById("samples-view");
makeTheme(themeButton);
document.querySelectorAll("form[data-filters]").forEach(makeFilters);
if (boardTables.length) makeBoards(boardTables);
document.querySelectorAll("table[data-filtered]").forEach(makeFiltered);
document.querySelectorAll("table[data-sortable]").forEach(makeSortable);
if (samplesView) makeSamples(samplesView);
if (pairsView) makePairs(pairsView);
window.addEventListener("beforeprint", () => {
  document.querySelectorAll("details.reading").forEach((one) => (one.open = true));
});
start();
